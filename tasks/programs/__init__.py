"""Training programs of users: their inputs and results."""
