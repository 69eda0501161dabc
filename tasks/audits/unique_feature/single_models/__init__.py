"""Single models, trained here on the unchanged data or given: their evaluation, their ranks and the answer."""
