"""Reads results from the store and draws pages and figures."""
