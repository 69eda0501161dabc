"""Diffusion models of images, conditioned on a vector."""
