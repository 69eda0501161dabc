"""The plan: the jobs of a config, each with its key."""
