"""Specifications from flags and files, their fields, and the resulting configs."""
