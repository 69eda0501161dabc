"""Runs from start to end: driving the plan, logging, and drawing pages."""
