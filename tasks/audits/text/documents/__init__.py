"""Documents in the training data of the audit's models, and documents inserted into that of a given model."""
