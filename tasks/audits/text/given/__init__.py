"""Given language models, evaluated by the audit or by their owners."""
