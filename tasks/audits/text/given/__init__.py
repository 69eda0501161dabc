"""Given models and the tables that their owners return."""
