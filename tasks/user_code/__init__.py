"""Users' code that results depend on: its files, their digests, and a check of the modules that a process loads."""
