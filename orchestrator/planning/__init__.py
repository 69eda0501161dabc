"""The plan: the jobs of a config and their keys."""
