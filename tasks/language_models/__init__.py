"""Language models: fine-tuning, text scores, and answers to questions about contexts."""
