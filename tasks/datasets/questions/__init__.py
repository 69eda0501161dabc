"""Questions about contexts with their gold answers: SQuAD's and DROP's files, records, and the embedded facts."""
