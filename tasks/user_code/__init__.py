"""Code of the user that results depend on: its files, their digests, and a check that nothing else was loaded."""
