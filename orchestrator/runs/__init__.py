"""A run from its start to its end: what drives its plan, logs it, and leaves its pages."""
