probes = None
