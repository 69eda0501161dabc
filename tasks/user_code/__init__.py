"""The user's code that results depend on: its files, their digests, and a check of what a process has loaded."""
