"""Question answering: questions about contexts with their gold answers, and how answers are scored."""
