"""What the tables say, each as rows of the summary."""
