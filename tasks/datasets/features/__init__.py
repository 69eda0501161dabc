"""Canary features: a glyph, words in a typeface or a picture, at a given position in the image."""

from tasks.datasets.features.burning import burn, burn_random, check_fits, describe_feature
from tasks.datasets.features.family import AskedFamily, Family, draw_member, family
from tasks.datasets.features.kinds import GLYPHS, Feature, Glyph, Picture, Words, glyph_pixels
from tasks.datasets.features.look_alikes import look_alikes

__all__ = [
    "GLYPHS",
    "AskedFamily",
    "Family",
    "Feature",
    "Glyph",
    "Picture",
    "Words",
    "burn",
    "burn_random",
    "check_fits",
    "describe_feature",
    "draw_member",
    "family",
    "glyph_pixels",
    "look_alikes",
]
