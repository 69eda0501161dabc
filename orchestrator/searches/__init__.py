"""Searches: which training remembers least for the accuracy that is needed. Trials are runs; Ray Tune proposes them."""
