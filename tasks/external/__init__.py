"""External models: files that are loaded and evaluated, and output tables that model owners return."""
