"""Shared numerics: random streams, statistics and nearest neighbours."""
