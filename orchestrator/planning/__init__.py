"""The plan: the jobs of a configuration and their keys."""
