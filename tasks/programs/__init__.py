"""A user's own training program as a job: a command or a Python function that trains on given rows."""
