"""Secrets and identifiers, which are ranked among other candidates of the same format."""
