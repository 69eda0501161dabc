"""Reads the store and draws."""
