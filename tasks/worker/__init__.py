"""The process in which a task runs: its device, memory, files, and the states it continues from."""
