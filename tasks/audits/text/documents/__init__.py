"""Documents that models are trained on, or that were inserted into the training data of a given model."""
