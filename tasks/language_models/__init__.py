"""Language models: sequence models fine-tuned on questions about contexts, and their answers."""
