"""The images that every model is asked about: D_Q and the control set, and how they are handed out to an owner.

An owner gets both in one set and shuffled, some of them twice, so that nothing in a picture's name says which it is.
The set's name ends in a digest of what is in it: a table that was made for other settings has no row for these.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.datasets.catalog import load
from tasks.datasets.images import Labels, Pixels
from tasks.datasets.mixtures import Part, Remainder, Rows, groups_of
from tasks.external.handout import image_of

ALONE, TOGETHER = "query", "pictures"  # the set's name, without and with a control set
REPEATED = 0.1  # of the images that are handed out twice where there is a control set
DIGITS = 8  # of a digest


@dataclass(frozen=True)
class ProbeSet:
    """D_Q and the control set: what is held back of D_Q's pool, or a part of its own, or none.

    `seed` says in which order they are handed out.
    """

    query: Part | Remainder
    control: Part | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.control is not None and isinstance(self.query, Remainder):
            raise ValueError("control is given, and some of the query set is held back; one of them must be the other")


@dataclass(frozen=True, eq=False)
class Probes:
    """The images of a probe set, D_Q's first: pixels (n, h, w, c) and what is known of each, all (n,)."""

    images: Pixels
    labels: Labels
    rows: Rows  # of the training split of their own data set
    groups: Rows  # such as the patient; no group is in D_Q and in a control set that is held back
    is_control: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class HandedOut:
    """A name for the set, and the image at each place of it; an image may be there twice."""

    name: str
    order: NDArray[np.int64]

    @property
    def ids(self) -> list[str]:
        """The id of each image's first place, by image."""
        return [image_of(self.name, place) for place in self._first]

    @property
    def repeats(self) -> dict[int, str]:
        """The id of the second place of each image that has two."""
        first = set(self._first)
        return {int(image): image_of(self.name, place) for place, image in enumerate(self.order) if place not in first}

    @property
    def _first(self) -> list[int]:
        """The first place of each image, by image."""
        return [int(place) for place in np.unique(self.order, return_index=True)[1]]


def probes_of(config: ProbeSet) -> Probes:
    """The images, with a group's number of its own where the control set is another data set."""
    data = load(config.query.data)
    rows = config.query.rows(data)
    held = config.query.held(data) if isinstance(config.query, Remainder) else rows[:0]
    parts = [(data, rows), (data, held)]
    if config.control is not None:
        other = load(config.control.data)
        parts[1] = other, config.control.rows(other)
    (_, asked), (source, control) = parts
    groups = groups_of(data, asked)
    of_control = groups_of(source, control)
    if config.control is not None:
        of_control = of_control + int(groups.max()) + 1  # two data sets may number their groups alike
    return Probes(
        images=np.concatenate([images.train_images[chosen] for images, chosen in parts]),
        labels=np.concatenate([images.train_labels[chosen] for images, chosen in parts]),
        rows=np.concatenate([asked, control]),
        groups=np.concatenate([groups, of_control]),
        is_control=np.arange(len(asked) + len(control)) >= len(asked),
    )


def handed_out(config: ProbeSet) -> HandedOut:
    """The images in the order in which they are handed out: D_Q's alone in theirs, others shuffled with repeats."""
    probes = probes_of(config)
    count = len(probes.rows)
    if not probes.is_control.any():
        return HandedOut(ALONE, np.arange(count))
    parts = [config.query, *([] if config.control is None else [config.control])]
    content = [[part.data.identity() for part in parts], probes.rows.tolist(), config.seed]
    name = f"{TOGETHER}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:DIGITS]}"
    chance = seeds.generator(config.seed, "handed out")
    twice = chance.permutation(count)[: max(1, round(REPEATED * count))]
    return HandedOut(name, chance.permutation(np.concatenate([np.arange(count), twice])))
