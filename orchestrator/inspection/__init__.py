"""Inspection of runs, results and plans. Nothing here starts or changes a run."""
