"""The files of a run in its folder, `runs/ID/`: its plan, log, tables and timings."""
