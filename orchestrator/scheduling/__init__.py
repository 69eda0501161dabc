"""Drives a plan to completion on an executor by choosing the next call and handling each outcome."""
