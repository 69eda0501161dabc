"""Image sources by name: where they are found, what their content is, and their splits."""
