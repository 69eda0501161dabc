"""Given language models, evaluated here or by their owners."""
