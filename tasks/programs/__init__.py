"""Training programs of users: what they are given and what they return."""
