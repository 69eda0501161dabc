"""Features: what a canary carries. A glyph, words in a typeface or a picture, at a place of its own."""

from tasks.datasets.features.burning import burn, burn_random, called, check_fits, random_patches
from tasks.datasets.features.family import Family, drawn, family
from tasks.datasets.features.feature import Feature
from tasks.datasets.features.glyph import GLYPHS, Glyph, pixels
from tasks.datasets.features.picture import Picture
from tasks.datasets.features.words import Words

__all__ = [
    "GLYPHS",
    "Family",
    "Feature",
    "Glyph",
    "Picture",
    "Words",
    "burn",
    "burn_random",
    "called",
    "check_fits",
    "drawn",
    "family",
    "pixels",
    "random_patches",
]
