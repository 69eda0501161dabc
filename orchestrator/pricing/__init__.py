"""What a plan costs before it runs: by timings of this store, else by reference timings and this machine's speed."""
