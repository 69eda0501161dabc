"""One training loop per kind of learning, many models at once behind one contract."""
