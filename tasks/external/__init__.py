"""External models: files that are loaded and evaluated, and tables of outputs returned by a model's owner."""
