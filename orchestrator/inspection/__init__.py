"""Inspection of runs, results and plans: nothing here starts or changes one."""
