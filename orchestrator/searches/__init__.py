"""Searches for the training that memorises least at the required accuracy. Trials are runs, proposed by Ray Tune."""
