"""Counts the operations of computations before they run."""
