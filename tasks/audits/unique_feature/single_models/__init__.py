"""Single models, either trained by the audit on the unchanged data or given: their evaluation, ranks and verdict."""
