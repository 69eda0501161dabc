"""Question answering: what is taken out of contexts, what is asked, the answers and how they are scored."""
