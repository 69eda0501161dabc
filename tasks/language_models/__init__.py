"""Language models: fine-tuning, scores of texts, and answers to questions about contexts."""
