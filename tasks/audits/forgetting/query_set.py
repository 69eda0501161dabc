"""The query set, its control set, and the shuffled union of both that every model or its owner receives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import files, load
from tasks.datasets.copies import groups_of
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Labels, PictureSet
from tasks.datasets.mixtures import Part, Remainder, Rows
from tasks.datasets.picture_rows import Concatenated, Selected
from tasks.external.blinding import (
    SPLIT_SCHEMA,
    HandedOut,
    blind_images,
    key_of,
    withheld,
)
from tasks.external.bound_draw import OTHER_PARTY, Draw, check_secret, derive_secret_seed, describe_draw
from tasks.worker.files import WITHHELD

SET_NAME = "query"  # name of the exported set if there is no control set
GUESSABLE = (
    "Warning: the run's seed alone determines which images are D_Q, so an owner who tries seeds can find out: set "
    "query.secret=$(openssl rand -hex 16) before any image is sent, and keep the secret."
)


@dataclass(frozen=True)
class HeldBack(Ranged):
    """A random share of the query set, which is kept out of all trainings."""

    tag: ClassVar[str] = "held-back"

    held_back: Annotated[float, Share(zero=False, one=False)] = 0.5
    """Share that is held back; if images have groups, such as patients, whole groups are held back."""


@dataclass(frozen=True)
class NamedImages(Part):
    """Other images, drawn at random from the pool that D_Q was drawn from."""

    tag: ClassVar[str] = "named"

    @property
    def part(self) -> Part:
        """The images as a part of their data set."""
        return Part(self.data, self.first, self.examples, self.without_copies)


@dataclass(frozen=True)
class ControlSet(Ranged):
    """Images from the source of D_Q that no model was trained on, and the settings by which targets are judged.

    The permutation test is exact if chance decided which images are control: held-back images, and named images that
    were drawn at random from the pool of D_Q. The model's owner must not be able to guess both `seed` and `secret`,
    which determine the control images.
    """

    images: HeldBack | NamedImages = HeldBack()
    """The control images."""
    partial: tuple[Annotated[float, Share(zero=False)], ...] = (0.05, 0.1, 0.25)
    """Ours: shares of D_Q on which partial models are trained in addition to D_C; they show the effect of a share."""
    negligible: Annotated[float, Share(zero=False, one=False)] = 0.1
    """Ours: a target is called forgotten if it may hold at most this share of D_Q."""
    permutations: Annotated[int, AtLeast(1)] = 9999
    """Ours: number of random draws of the control set; the share of draws with an effect at least as large is the
    p-value of not forgotten."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld, OUTSIDE_COMMITMENT: True})
    """Text that cannot be guessed. Together with `seed`, it determines which images are held back and the order in
    which images are sent. Without it, an owner who tries seeds can determine both."""
    nonce: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Text that the other party named after receiving the commitment (`engram probes --commit`). The draw also depends
    on it, so that neither party chooses the draw."""
    nonce_by: str = field(default=OTHER_PARTY, metadata={OUTSIDE_COMMITMENT: True, ANSWER_ONLY: True})
    """Who named the nonce: the model's owner, or a public beacon issued after the commitment."""
    commitment: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """The commitment that the nonce was named after. It covers the whole configuration except the nonce, the secret and
    the other party's files; a run with another configuration is refused."""

    def conflicts(self) -> Iterator[str]:
        check_secret(self.secret, self.nonce, self.nonce_by)
        if len(set(self.partial)) < len(self.partial):
            twice = next(share for share in self.partial if self.partial.count(share) > 1)
            yield f"partial has {twice} twice; each must be there once"

    @property
    def held_back(self) -> float:
        """Share of the query set that is held back. 0 if the control images are named."""
        if isinstance(self.images, HeldBack):
            return self.images.held_back
        return 0.0

    @property
    def named_part(self) -> Part | None:
        """The named control images, or None if control images are held back."""
        if isinstance(self.images, NamedImages):
            return self.images.part
        return None


@dataclass(frozen=True)
class QuerySet(Ranged):
    """The query set D_Q and its control set.

    Without a control set, knowing D_Q cannot be distinguished from knowing images of its source.
    """

    data: Dataset
    """Data set; some of its training images are the query set."""
    first: Annotated[int, AtLeast(0)] = 0
    """Row of the first image."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of images; 0: all that follow."""
    control: ControlSet | None = ControlSet()
    """The control set, and how targets are judged by it; none: no target is judged."""

    @property
    def pool(self) -> Part:
        """The images that are either D_Q or held back."""
        return Part(self.data, self.first, self.examples)

    @property
    def is_controlled(self) -> bool:
        return self.control is not None

    @property
    def is_guessable(self) -> bool:
        """Whether someone who tries seeds can determine which images are the control set."""
        return self.control is not None and not self.control.secret

    @property
    def held_back(self) -> float:
        """Share that is held back as the control set. 0 if none is."""
        return 0.0 if self.control is None else self.control.held_back

    @property
    def named_control(self) -> Part | None:
        """The named control images, or None if they are held back or there are none."""
        return None if self.control is None else self.control.named_part

    def plainly(self, images: PictureSet, control: PictureSet | None) -> QuerySet:
        """Return the same images in the shortest notation, so that equal sets have equal keys."""
        query = replace(self, examples=self.pool.plainly(images).examples)
        if self.control is None or control is None or not isinstance(self.control.images, NamedImages):
            return query
        named_images = self.control.images
        named_images = replace(named_images, examples=named_images.part.plainly(control).examples)
        return replace(query, control=replace(self.control, images=named_images))

    def query_part(self, seed: int) -> Part | Remainder:
        """Return D_Q, on which models of a run with this seed are trained."""
        if not self.held_back:
            return self.pool
        return Remainder(self.pool, self.held_back, self.derive_seed(seed, "control"))

    def probes(self, seed: int) -> ProbeSet:
        """Return D_Q and the control set of a run with this seed."""
        return ProbeSet(self.query_part(seed), self.named_control, self.derive_seed(seed, "handed out"))

    def derive_seed(self, seed: int, name: str) -> int:
        """Derive a seed that the owner must not know, by SHA-256 from the run's seed, the secret and the nonce.

        Without a secret it depends only on the run's seed.
        """
        if self.control is None:
            return derive_secret_seed(seed, name, "")
        return derive_secret_seed(seed, name, self.control.secret, self.control.nonce)

    def draw(self, seed: int, config: object) -> Draw:
        """Describe the randomness of the draw in a run with this seed and configuration."""
        control = self.control
        if control is None:
            return Draw(self._drawn_from, config, seed, "")
        return Draw(self._drawn_from, config, seed, control.secret, control.nonce, control.commitment)

    def _drawn_from(self) -> tuple[object, ...]:
        if self.named_control is None:
            parts = [self.pool]
        else:
            parts = [self.pool, self.named_control]
        return (*((part.data.identity(), part.first, part.examples) for part in parts), self.held_back)

    def describe_draw(self) -> str:
        """State in sentences who chose the draw. Empty without a control set."""
        if self.control is None:
            return ""
        subject = "The order in which images are handed out"
        if self.held_back:
            subject = "The choice of the control images"
        return describe_draw(subject, self.control.commitment, self.control.nonce, self.control.nonce_by)


@dataclass(frozen=True)
class ProbeSet:
    """D_Q and the control set, which is held back from D_Q's pool, named, or missing.

    `seed` determines the order in which the images are sent.
    """

    query: Part | Remainder
    control: Part | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.control is not None and isinstance(self.query, Remainder):
            raise ValueError("control is named, and images are held back; expected only one control set")


@dataclass(frozen=True, eq=False)
class Probes:
    """Images of a probe set, D_Q first: pixels (n, h, w, c), read by slices, and further arrays (n,)."""

    images: Selected
    labels: Labels
    rows: Rows  # row in the training split of the image's data set
    groups: Rows  # such as the patient; no group is both in D_Q and in a held-back control set
    is_control: NDArray[np.bool_]


Rowed = tuple[PictureSet, Rows]


def probe_rows(config: ProbeSet) -> tuple[Rowed, Rowed]:
    """Return the data set and rows of D_Q and of the control set, which may be empty."""
    data = load(config.query.data)
    rows = config.query.rows(data)
    if config.control is not None:
        control_data = load(config.control.data)
        return (data, rows), (control_data, config.control.rows(control_data))
    if isinstance(config.query, Remainder):
        control_rows = config.query.held_rows(data)
    else:
        control_rows = rows[:0]
    return (data, rows), (data, control_rows)


def load_probes(config: ProbeSet) -> Probes:
    """Return the images, with their labels. Group numbers of a named control set continue after those of D_Q."""
    parts = (data, query_rows), (source, control) = probe_rows(config)
    groups = groups_of(data, query_rows)
    of_control = groups_of(source, control)
    if config.control is not None:
        of_control = of_control + int(groups.max()) + 1  # two data sets may use the same group numbers
    both = Concatenated([images.train for images, _ in parts])
    rows_of_both = np.concatenate([query_rows, control + len(data.train)])
    return Probes(
        images=Selected(both, rows_of_both),
        labels=both.labels[rows_of_both],
        rows=np.concatenate([query_rows, control]),
        groups=np.concatenate([groups, of_control]),
        is_control=np.arange(len(query_rows) + len(control)) >= len(query_rows),
    )


def handout_order(config: ProbeSet) -> HandedOut:
    """Return the order in which the images are sent: D_Q alone in its own order, else shuffled with repeats."""
    probes = load_probes(config)
    count = len(probes.rows)
    if not probes.is_control.any():
        return HandedOut(SET_NAME, np.arange(count))
    parts = [config.query, *([] if config.control is None else [config.control])]
    content = [[part.data.identity() for part in parts], probes.rows.tolist(), config.seed]
    return blind_images(content, count, config.seed)


def key_table(config: ProbeSet) -> pa.Table:
    """Return the table that identifies each sent image, including repeats, as D_Q or control (`split.KEY`)."""
    rows = split_table(config).to_pylist()
    return key_of([(row[name], row["set"]) for row in rows for name in ("image", "again") if row[name] is not None])


def split_table(config: ProbeSet) -> pa.Table:
    """List each image of D_Q and the control set: its set, row, file and names in the sent folder (SPLIT_SCHEMA)."""
    probes = load_probes(config)
    order = handout_order(config)
    if config.control is None:
        control_data = config.query.data
    else:
        control_data = config.control.data
    names = []
    for control in probes.is_control:
        names.append(control_data.name if control else config.query.data.name)
    paths = {data.name: files(data) for data in (config.query.data, control_data)}
    return make_table(
        SPLIT_SCHEMA,
        set=np.where(probes.is_control, "control", "query"),
        data=names,
        row=probes.rows,
        file=[
            str(data_paths[row]) if (data_paths := paths[name]) else None
            for name, row in zip(names, probes.rows, strict=True)
        ],
        image=order.ids,
        again=[order.repeats.get(number) for number in range(len(names))],
    )
