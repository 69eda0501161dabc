"""What a task knows of the process that computes it: device, memory, files, states to go on from."""
