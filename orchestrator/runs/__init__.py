"""A run from its start to its end: driving its plan, logging it, and drawing its pages."""
