"""Losses of embeddings, one in each module."""
