"""Training loops, one per kind of objective, that train many models at once behind a common interface."""
