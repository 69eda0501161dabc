"""Pairs of networks, one trained with a canary and its twin without: how canaries are chosen, and what pairs show."""
