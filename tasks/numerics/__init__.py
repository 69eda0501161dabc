"""What is computed alike everywhere: random streams, statistics, nearest neighbours."""
