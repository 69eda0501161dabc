"""One module per method. The folder is the list of methods."""
