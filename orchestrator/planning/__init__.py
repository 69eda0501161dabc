"""The plan: which jobs a config comes to, each with the key that it is known by."""
