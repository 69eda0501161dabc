"""What can be read out of the models at the feature's place: the strongest pixels, and of a name its letters."""

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
HEADING = "Read out of the models: the strongest pixels at the feature's place, white"
LETTERS = "Read out of the models: the letters that fit the slopes at the name's place best"
GIVEN = {"reference_ranks": (REFERENCE_RANKS, "beside references"), "weight_ranks": (WEIGHT_RANKS, "first layer")}


@dataclass(frozen=True)
class ReadOut:
    """The row of a rank whose slopes are read, whose it is in words, and what its models were asked about."""

    who: str
    row: Row
    asked: Relatives


def read_out(run: Run, config: UniqueFeature) -> Iterator[Picture]:
    """Of each of the first canaries, and of models that are asked alone: the pixels, and of words their letters."""
    shape = config.shape
    read = [*canary_ranks(run.table("exact_ranks"), config), *given_ranks(run, config)]
    for of in read:
        yield from _strongest_pictures(of)
    for of in read:
        if isinstance(of.asked.feature, Words):
            yield from _letter_pictures(of, of.asked.feature, shape)


def canary_ranks(table: pa.Table, config: UniqueFeature) -> Iterator[ReadOut]:
    """The rank of each of the first canaries by the slopes of its pair."""
    if not table.schema.equals(EXACT_RANKS):
        return
    drawn = drawn_canaries(config)
    asked = {canary.image: relatives(config, canary.asked, canary.number) for canary in drawn}
    seen: dict[int, Row] = {}
    for row in table.to_pylist():
        if row["score"] == SCORE and row["hits"] is not None:
            seen.setdefault(row["canary"], row)
    for canary, row in list(seen.items())[:MOST]:
        yield ReadOut(f"canary {canary}", row, asked.get(canary) or relatives(config, config.asked_feature))


def drawn_canaries(config: UniqueFeature) -> list[Canary]:
    """The canaries of pairs if they were drawn at random: only then may each carry a feature of its own."""
    pairs = config.pairs
    if pairs is None or not isinstance(pairs.choice, RandomChoice):
        return []
    return canaries(config, pairs, load(pairs.data))


def given_ranks(run: Run, config: UniqueFeature) -> Iterator[ReadOut]:
    """The ranks of models that are asked alone, by their slopes beside references and by their first layer."""
    for name, (schema, by) in GIVEN.items():
        table = run.table(name)
        if table.schema.equals(schema):
            rows = (row for row in table.to_pylist() if row["feature"] == "canary" and row["hits"] is not None)
            yield from (ReadOut(f"given model, {by}", row, relatives(config, config.asked_feature)) for row in rows)


def _strongest_pictures(of: ReadOut) -> Iterator[Picture]:
    """What the feature inks at its place, and the pixels of the largest slopes, as many."""
    row, shape = of.row, (of.row["height"], of.row["width"])
    found = strongest_pixels(np.array(row["slopes"]), row["inked"])
    hits = f"{row['hits']} of {row['inked']} hit, {drawing.format_number(row['hits_by_chance'])} by chance"
    for which, mask in (("what the models were asked about", row["ink"]), ("read out of the models", found)):
        image = (np.array(mask, bool).reshape(shape) * OPAQUE).astype(np.uint8)[..., None]
        title = f"{of.who}, {which}{f', {hits}' if mask is found else ''}"
        yield Picture(encode_png(image), title, f"The feature's place, {title}", HEADING)


def _letter_pictures(of: ReadOut, feature: Words, shape: Shape) -> Iterator[Picture]:
    """The words asked about, those that the slopes spell, and of all that are like the feature what fits them best."""
    slopes = _slope_image(of.row, feature.patch(), shape)
    others = family(feature, of.asked.family, of.asked.seed, shape[:2])
    read = read_letters(feature, others, slopes)
    nearest, what = _nearest_alike(of.asked, others, slopes)
    chance = f"{read.right} of {read.letters} letters right, {drawing.format_number(read.right_by_chance)} by chance"
    patches = (feature.patch(), replace(feature, words=read.words).patch(), nearest)
    titles = (
        f"what the models were asked about: {feature.describe()}",
        f"read out of the models: {read.words!r}, {chance}",
        f"what fits the slopes best of all that are like it: {what}",
    )
    for title, image in zip(titles, _paint(patches), strict=True):
        yield Picture(encode_png(image), f"{of.who}, {title}", f"White on black, {of.who}, {title}", LETTERS)


def _slope_image(row: Row, patch: Patch, shape: Shape) -> Array:
    """The slopes of a row as an image, (h, w): where the pixels that the feature inks lie on its patch."""
    size = row["height"], row["width"]
    ink, values = (np.array(row[name]).reshape(size) for name in ("ink", "slopes"))
    starts = [max(0, first - length) for first, length in zip((patch.top, patch.left), size, strict=True)]
    near = _cover_image(patch, shape)[tuple(slice(first, first + 3 * n) for first, n in zip(starts, size, strict=True))]
    inside = np.lib.stride_tricks.sliding_window_view(near, size)[..., ink].sum(axis=-1)
    top, left = np.add(starts, np.unravel_index(np.argmax(inside), inside.shape))
    slopes = np.zeros(shape[:2])
    slopes[top : top + size[0], left : left + size[1]] = values
    return slopes


def _cover_image(patch: Patch, shape: Shape) -> Array:
    """How much of each pixel of an image the patch covers, (h, w), from 0 to 1."""
    whole = np.zeros(shape[:2])
    height, width = patch.cover.shape
    whole[patch.top : patch.top + height, patch.left : patch.left + width] = patch.cover / OPAQUE
    return whole


def _nearest_alike(asked: Relatives, others: list[Feature], slopes: Array) -> tuple[Patch, str]:
    """Of the feature's family and its look-alikes what has the largest sum of slopes under its ink, and what it is."""
    size = (*slopes.shape, 1)
    alike: list[tuple[Patch, str]] = [(each.patch(), each.describe()) for each in others]
    if asked.family.look_alikes:
        parts = look_alikes(asked.feature, asked.family, asked.seed, size[:2])
        for part, patches in enumerate(parts, start=1):
            alike += [(patch, f"a look-alike, which differs in part {part} alone") for patch in patches]
    return max(alike, key=lambda each: float((_cover_image(each[0], size) * slopes).sum()))


def _paint(patches: Sequence[Patch]) -> Iterator[NDArray[np.uint8]]:
    """Each patch's cover, white on black, in the smallest block that holds them all."""
    starts = np.array([(patch.top, patch.left) for patch in patches])
    ends = starts + [patch.cover.shape for patch in patches]
    (top, left), (bottom, right) = starts.min(axis=0), ends.max(axis=0)
    for patch in patches:
        yield np.rint(OPAQUE * _cover_image(patch, (bottom, right, 1))).astype(np.uint8)[top:, left:, None]
