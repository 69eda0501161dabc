"""Documents in the training data of models, and documents that were inserted for a given model."""
