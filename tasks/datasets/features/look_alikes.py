"""Look-alikes of a feature: features that differ from it in only one part.

A model that was trained on a namesake responds to the part that the two names share, so the name ranks first among
names without that part. It has no such advantage among names that also contain the part: if the rest is random and the
model was not trained on any feature with that rest, each look-alike is equally likely to rank first, regardless of what
the model knows about the shared part.

The parts are the words of a text, or the two halves of a single word, and the upper and lower half of a glyph or
picture. More parts would separate more similar features, but would detect fewer features that the model was trained on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.features.family import (
    FRUITLESS,
    RUN,
    Family,
    listed_lengths,
    listed_words,
    other_run,
)
from tasks.datasets.features.kinds import CELLS, Feature, Glyph, Patch, Picture, Words, glyph_pixels
from tasks.numerics import seeds

LEAST = 19  # look-alikes; with fewer, rank 1 has a p-value above 5 %
HALVES = 2

Draw = Callable[[np.random.Generator], Patch]


def look_alikes(feature: Feature, config: Family, seed: int, shape: tuple[int, int]) -> list[list[Patch]]:
    """For each part, return `config.look_alikes` features that differ only in that part, or fewer if there are no more.

    The features are distinct and random, and within a part they have the same distribution as members of the feature's
    family. Returns an empty list if the feature does not have two parts.
    """
    original = feature.patch()
    features_by_part = []
    for number, draw in enumerate(_part_draws(feature, config)):
        generator = seeds.generator(seed, "look-alikes", number)
        earlier_pixels = {original.pixels()}
        fruitless = 0
        members: list[Patch] = []
        while len(members) < config.look_alikes and fruitless < FRUITLESS:
            patch = draw(generator)
            fruitless += 1
            if patch.fits(*shape) and patch.pixels() not in earlier_pixels:
                earlier_pixels.add(patch.pixels())
                members.append(patch)
                fruitless = 0
        features_by_part.append(members)
    return features_by_part


def _part_draws(feature: Feature, config: Family) -> list[Draw]:
    """For each part of the feature, return a function that draws a replacement."""
    match feature:
        case Words():
            return _word_draws(feature, config)
        case Glyph():
            cells = glyph_pixels(feature)[:: feature.size // CELLS, :: feature.size // CELLS].ravel()
            return [_glyph_draw(feature, cells, half) for half in halves(cells[:, None])]
        case Picture():
            patch = feature.patch()
            inside = np.flatnonzero(patch.cover)
            tones = np.column_stack([patch.cover.ravel(), patch.colour.reshape(-1, patch.colour.shape[2])])[inside]
            return [_picture_draw(patch, inside[half]) for half in halves(tones)]


# Words


def _word_draws(feature: Words, config: Family) -> list[Draw]:
    """Return one draw function per word or number of the text, or per half of a single word."""
    runs = list(RUN.finditer(feature.words))
    if config.names is not None:
        return [draw for index in range(len(runs)) for draw in _listed_draw(feature, config, index)]
    if len(runs) > 1 and all(len(run.group()) > 1 or run.group().isalpha() for run in runs):
        lengths = listed_lengths(feature, config.count)
        return [_run_draw(feature, run.start(), run.end(), lengths) for run in runs]
    places = [index for index, character in enumerate(feature.words) if RUN.match(character)]
    middle = len(places) // 2
    return [_run_draw(feature, half[0], half[-1] + 1, set()) for half in (places[:middle], places[middle:]) if half]


def _run_draw(feature: Words, start: int, end: int, lengths: set[int]) -> Draw:
    """Return a function that redraws names, letters and digits from `start` to `end`, as in the feature's family."""
    words = feature.words

    def draw(generator: np.random.Generator) -> Patch:
        replacement = RUN.sub(lambda run: other_run(run.group(), lengths, generator), words[start:end])
        return word_patch(replace(feature, words=words[:start] + replacement + words[end:]))

    return draw


def _listed_draw(feature: Words, config: Family, position: int) -> Iterator[Draw]:
    """Yield a function that draws the word at this position from the listed names, if the feature is such a name."""
    assert config.names is not None
    runs = list(RUN.finditer(feature.words))
    listed_runs = [RUN.findall(line) for line in listed_words(config.names, feature.words)]
    other_words = sorted(
        {words[position] for words in listed_runs if len(words) == len(runs)} - {runs[position].group()}
    )
    before, after = feature.words[: runs[position].start()], feature.words[runs[position].end() :]
    if other_words and len(runs) > 1:
        yield lambda generator: word_patch(replace(feature, words=f"{before}{generator.choice(other_words)}{after}"))


@functools.lru_cache(4096)  # if there are few alternatives, the same ones are drawn repeatedly
def word_patch(feature: Words) -> Patch:
    return feature.patch()


# Glyphs and pictures


def halves(tones: NDArray[Any]) -> list[NDArray[np.int64]]:
    """Split the positions of cells or pixels (n, values), row by row, into two halves.

    Returns an empty list if a half has too few arrangements for ranks. This depends on how many cells have each tone,
    not on their order.
    """
    position_halves = np.array_split(np.arange(len(tones)), HALVES)
    if all(arrangement_count(tones[half]) > LEAST for half in position_halves):
        return position_halves
    return []


def arrangement_count(tones: NDArray[Any]) -> float:
    """Return the number of distinct arrangements of cells with these tones, or infinity if it is large."""
    _, counts = np.unique(tones, axis=0, return_counts=True)
    log = math.lgamma(len(tones) + 1) - sum(math.lgamma(count + 1) for count in counts)
    return round(math.exp(log)) if log < math.log(1e6) else math.inf


def _glyph_draw(feature: Glyph, cells: NDArray[np.uint8], half: NDArray[np.int64]) -> Draw:
    """Return a function that draws the glyph with the cells of one half permuted."""
    step = feature.size // CELLS

    def draw(generator: np.random.Generator) -> Patch:
        changed = cells.copy()
        changed[half] = cells[generator.permutation(half)]
        pixels = changed.reshape(CELLS, CELLS).repeat(step, axis=0).repeat(step, axis=1)
        return Patch(np.full_like(pixels, 255), pixels[..., None], feature.top, feature.left)

    return draw


def _picture_draw(patch: Patch, half: NDArray[np.int64]) -> Draw:
    """Return a function that draws the picture with the pixels of one half permuted."""

    def draw(generator: np.random.Generator) -> Patch:
        order = generator.permutation(half)
        cover = patch.cover.copy()
        colour = patch.colour.copy()
        cover.ravel()[half] = patch.cover.ravel()[order]
        colour.reshape(-1, colour.shape[2])[half] = patch.colour.reshape(-1, colour.shape[2])[order]
        return replace(patch, cover=cover, colour=colour).trim()

    return draw
