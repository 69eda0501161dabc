"""What the tables say together: rows of the common summary, by subject."""
