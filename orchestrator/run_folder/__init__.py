"""What a run leaves in its folder, `runs/ID/`, and what others read there: its plan, log, tables and timings."""
