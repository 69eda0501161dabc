"""Image sources by name: where their files are found, what they contain and how they are split."""
