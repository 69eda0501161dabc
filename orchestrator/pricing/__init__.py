"""The expected time of a plan, from timings in this store, or from reference timings and this machine's speed."""
