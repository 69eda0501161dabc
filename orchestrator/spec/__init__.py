"""Specifications read from flags and files, their fields, and the resulting configurations."""
