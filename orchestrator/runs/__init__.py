"""Executes runs from start to finish: drives the plan, logs events, and draws pages."""
