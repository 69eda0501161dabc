"""The process of a task: device, memory, files and states to continue from."""
