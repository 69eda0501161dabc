"""Users' code that results depend on: its files, their digests, and checks of the modules that a process loads."""
