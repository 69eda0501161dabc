"""Question answering: corruption of contexts, question sets, predictions and scoring."""
