"""Pairs of networks, one trained with a canary and a control model trained without it.

These modules choose the canaries and measure what the pairs show.
"""
