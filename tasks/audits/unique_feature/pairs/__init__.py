"""Pairs of networks, one trained with a canary and its control model without: how canaries are chosen, and what pairs
show."""
