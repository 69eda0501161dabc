"""A feature of any kind."""

from __future__ import annotations

from tasks.datasets.features.glyph import Glyph
from tasks.datasets.features.picture import Picture
from tasks.datasets.features.words import Words

Feature = Glyph | Words | Picture
