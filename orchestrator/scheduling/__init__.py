"""Drives a plan to completion on an executor: selects the next call and handles each outcome."""
