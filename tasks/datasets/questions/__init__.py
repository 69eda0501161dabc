"""Questions about contexts and their gold answers: SQuAD and DROP files, records, and embedded facts."""
