"""Question answering: corrupted contexts, question sets, predictions and scoring."""
