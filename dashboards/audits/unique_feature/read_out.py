"""Reconstruction of the feature from the models: its strongest pixels, and the letters of a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.gallery import Picture, encode_png
from dashboards.run import Run
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.config import Shape
from tasks.audits.unique_feature.letters import read_letters
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS, REFERENCE_RANKS
from tasks.audits.unique_feature.pairs.canary_selection import Canary, canaries
from tasks.audits.unique_feature.population import Relatives, relatives
from tasks.audits.unique_feature.questions import RandomChoice
from tasks.audits.unique_feature.single_models.weight_ranks import WEIGHT_RANKS
from tasks.audits.unique_feature.slopes import Array, strongest_pixels
from tasks.contract.summaries import Row
from tasks.datasets.catalog import load
from tasks.datasets.features import Feature, Words, family, look_alikes
from tasks.datasets.features.kinds import OPAQUE, Patch

MOST = 6  # canaries whose pixels are shown
SCORE = "pair"
HEADING = "Reconstructed from the models: the strongest pixels at the feature's position, in white"
LETTERS = "Reconstructed from the models: the letters that fit the slopes at the name's position best"
GIVEN = {"reference_ranks": (REFERENCE_RANKS, "with references"), "weight_ranks": (WEIGHT_RANKS, "first layer")}


@dataclass(frozen=True)
class ReadOut:
    """A rank with slopes, the name of the model or canary, the audited feature, and the family of this feature."""

    name: str
    row: Row
    relatives: Relatives


def read_out(run: Run, config: UniqueFeature) -> Iterator[Picture]:
    """Yield the strongest pixels for the first canaries and for single models.

    If the feature is words, also yield their letters.
    """
    shape = config.shape
    sources = [*canary_ranks(run.table("exact_ranks"), config), *given_ranks(run, config)]
    for source in sources:
        yield from _strongest_pictures(source)
    for source in sources:
        if isinstance(source.relatives.feature, Words):
            yield from _letter_pictures(source, source.relatives.feature, shape)


def canary_ranks(table: pa.Table, config: UniqueFeature) -> Iterator[ReadOut]:
    """Yield the rank of each of the first canaries by the slopes of its pair."""
    if not table.schema.equals(EXACT_RANKS):
        return
    canaries_drawn = drawn_canaries(config)
    relatives_by_row = {
        canary.image: relatives(config, canary.audited_feature, canary.number) for canary in canaries_drawn
    }
    first_rows: dict[int, Row] = {}
    for row in table.to_pylist():
        if row["score"] == SCORE and row["hits"] is not None:
            first_rows.setdefault(row["canary"], row)
    for canary, row in list(first_rows.items())[:MOST]:
        yield ReadOut(f"canary {canary}", row, relatives_by_row.get(canary) or relatives(config, config.asked_feature))


def drawn_canaries(config: UniqueFeature) -> list[Canary]:
    """Return the pairs' canaries if they were drawn at random. Only then may each have its own feature."""
    pairs = config.pairs
    if pairs is None or not isinstance(pairs.choice, RandomChoice):
        return []
    return canaries(config, pairs, load(pairs.data))


def given_ranks(run: Run, config: UniqueFeature) -> Iterator[ReadOut]:
    """Yield the ranks of single models, by their slopes compared with references and by their first layer."""
    for name, (schema, by) in GIVEN.items():
        table = run.table(name)
        if table.schema.equals(schema):
            rows = (row for row in table.to_pylist() if row["feature"] == "canary" and row["hits"] is not None)
            yield from (ReadOut(f"given model, {by}", row, relatives(config, config.asked_feature)) for row in rows)


def _strongest_pictures(source: ReadOut) -> Iterator[Picture]:
    """Yield the inked pixels of the feature, and the same number of pixels with the largest slopes."""
    row, shape = source.row, (source.row["height"], source.row["width"])
    strongest = strongest_pixels(np.array(row["slopes"]), row["inked"])
    hits = f"{row['hits']} of {row['inked']} hit, {drawing.format_number(row['hits_by_chance'])} by chance"
    for which, mask in (("audited feature", row["ink"]), ("reconstructed", strongest)):
        image = (np.array(mask, bool).reshape(shape) * OPAQUE).astype(np.uint8)[..., None]
        title = f"{source.name}, {which}{f', {hits}' if mask is strongest else ''}"
        yield Picture(encode_png(image), title, f"The feature's position, {title}", HEADING)


def _letter_pictures(source: ReadOut, feature: Words, shape: Shape) -> Iterator[Picture]:
    """Yield the audited words, the words that the slopes spell, and the best fit among similar features."""
    slopes = _slope_image(source.row, feature.patch(), shape)
    family_members = family(feature, source.relatives.family, source.relatives.seed, shape[:2])
    letters = read_letters(feature, family_members, slopes)
    nearest, nearest_name = _nearest_alike(source.relatives, family_members, slopes)
    by_chance = drawing.format_number(letters.right_by_chance)
    chance = f"{letters.right} of {letters.letters} letters right, {by_chance} by chance"
    patches = (feature.patch(), replace(feature, words=letters.words).patch(), nearest)
    titles = (
        f"audited feature: {feature.describe()}",
        f"reconstructed: {letters.words!r}, {chance}",
        f"best fit among similar features: {nearest_name}",
    )
    for title, image in zip(titles, _paint(patches), strict=True):
        yield Picture(encode_png(image), f"{source.name}, {title}", f"White on black, {source.name}, {title}", LETTERS)


def _slope_image(row: Row, patch: Patch, shape: Shape) -> Array:
    """Return the slopes in a row as an image, (h, w), placed so that the inked pixels lie on the feature's patch."""
    size = row["height"], row["width"]
    ink = np.array(row["ink"]).reshape(size)
    values = np.array(row["slopes"]).reshape(size)
    starts = []
    for first, length in zip((patch.top, patch.left), size, strict=True):
        starts.append(max(0, first - length))
    near = _cover_image(patch, shape)[tuple(slice(first, first + 3 * n) for first, n in zip(starts, size, strict=True))]
    inside = np.lib.stride_tricks.sliding_window_view(near, size)[..., ink].sum(axis=-1)
    top, left_edge = np.add(starts, np.unravel_index(np.argmax(inside), inside.shape))
    slopes = np.zeros(shape[:2])
    slopes[top : top + size[0], left_edge : left_edge + size[1]] = values
    return slopes


def _cover_image(patch: Patch, shape: Shape) -> Array:
    """Return the fraction of each pixel that the patch covers, (h, w), from 0 to 1."""
    image = np.zeros(shape[:2])
    height, width = patch.cover.shape
    image[patch.top : patch.top + height, patch.left : patch.left + width] = patch.cover / OPAQUE
    return image


def _nearest_alike(family_config: Relatives, members: list[Feature], slopes: Array) -> tuple[Patch, str]:
    """Return the family member or look-alike with the largest sum of slopes under its ink, and a description."""
    size = (*slopes.shape, 1)
    alike: list[tuple[Patch, str]] = [(candidate.patch(), candidate.describe()) for candidate in members]
    if family_config.family.look_alikes:
        parts = look_alikes(family_config.feature, family_config.family, family_config.seed, size[:2])
        for part, patches in enumerate(parts, start=1):
            alike += [(patch, f"a look-alike that differs in part {part}") for patch in patches]
    return max(alike, key=lambda candidate: float((_cover_image(candidate[0], size) * slopes).sum()))


def _paint(patches: Sequence[Patch]) -> Iterator[NDArray[np.uint8]]:
    """Yield each patch's cover, white on black, in the smallest block that contains all patches."""
    starts = np.array([(patch.top, patch.left) for patch in patches])
    ends = starts + [patch.cover.shape for patch in patches]
    (top, left_edge), (bottom, right) = starts.min(axis=0), ends.max(axis=0)
    for patch in patches:
        yield np.rint(OPAQUE * _cover_image(patch, (bottom, right, 1))).astype(np.uint8)[top:, left_edge:, None]
