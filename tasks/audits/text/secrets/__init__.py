"""Secrets and identifiers, which are ranked among others of their space."""
