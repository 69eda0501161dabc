"""Estimates of a plan's run time, from timings in this store or from reference timings and this machine's speed."""
