"""The optimisers, for many models at once.

Each model has its own learning rate and its own count of steps, and models can sit a step out.
"""
