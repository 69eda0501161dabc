"""What a run of the audit is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from tasks.audits.forgetting.decision import LEVEL
from tasks.audits.forgetting.query_set import ProbeSet, QuerySet
from tasks.audits.forgetting.target import ExternalTargets, NamedTarget, Target
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Remainder
from tasks.models import catalog
from tasks.models.catalog import Network, Regularisers
from tasks.training.recipe import Count, OptimiserName, Rate, Recipe
from tasks.training.unlearning_config import UnlearningSettings

MeasureGroup = Literal["scores", "examples"]


# The columns of the paper's tables: D* is the query set, shares of the calibration set, all of it and of the query set.
SHARES = (0.1, 0.5, 1.0)
PUBLISHED = (
    Target(query=1.0),
    *(Target(calibration=share) for share in (0.5, 0.75, 1.0)),
    *(Target(query=share, calibration=1.0) for share in SHARES),
)


@dataclass(frozen=True)
class Forgetting(Ranged):
    """Which data may have been forgotten, by which models, and how those that they are compared with are trained.

    The defaults are the published benchmark with a control set. Query, calibration and target models have one design.
    Models that know an image differ in how close to 1 they come, by chance and by how long they trained, and a distance
    that counts .9999 and .99999 as different counts that: hence `decimals`, for our one-sided score alone. The
    permutation test is exact where chance said who is control: of images that are held back, and of a `query.control`
    that was drawn at random from the pool of D_Q. An owner who is not to know what is held back must not be able to
    guess both `seed` and `query.secret`.
    """

    query: QuerySet = QuerySet(Dataset("mnist"))
    """What is to be forgotten (D_Q), and the control set of the same source, on which nobody trains."""
    calibration: Part = Part(Dataset("svhn-full#28x28#grey"))
    """D_C: data of the same domain that share no image with D_Q or its control set."""
    calibration_share: Annotated[float, Share(zero=False)] = 1.0
    """Ours: the share of D_C that each model is trained on, drawn anew for each. Below 1, models that are compared with
    the targets vary by their data too, as those of owners with data of their own do; 1: all have the same D_C."""
    outside: Part | None = Part(Dataset("cifar10#28x28#grey"))
    """Data of another domain; none where no target is trained on them."""
    targets: tuple[Target, ...] = (*PUBLISHED, Target(outside=1.0))
    """The models that are audited: each trained on shares of D_Q, D_C and outside, and then perhaps made to forget
    D_Q."""
    unlearning: UnlearningSettings = UnlearningSettings()
    """Ours: settings of the methods by which targets are made to forget."""
    given: ExternalTargets = ExternalTargets()
    """Ours: models of somebody else, which are audited instead of training targets."""
    measures: tuple[MeasureGroup, ...] = ("scores",)
    """What is measured."""
    network: Network = Network("cnn1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""
    dropout: bool = False
    """Whether it is trained with dropout."""
    batch_norm: bool = False
    """Whether it has batch norm."""
    augmentation: bool = False
    """Whether training images are shifted and mirrored at random."""
    crop: Annotated[int, AtLeast(0)] = 0
    """Side of the random squares that training sees, and of the central ones that models are asked about; 0: whole
    images."""
    replicates: Annotated[int, AtLeast(1)] = 5
    """How often each model is trained, from other seeds and on other shares."""
    epochs: Count = 20
    """Epochs of training."""
    link: Annotated[int, AtLeast(0)] = 0
    """Ours: epochs per link of the chain that a training is, from whose ends it goes on after an interruption; 0:
    one job."""
    optimiser: OptimiserName = "adam"
    """The optimiser."""
    learning_rate: Rate = 1e-3
    """The learning rate, at first."""
    schedule: tuple[tuple[int, float], ...] = ((16, 0.1),)
    """Pairs (epoch, factor) that end it small: models that have not come to rest differ between replicates by more
    than by their data."""
    batch: Count = 128
    """Images a step."""
    decimals: Annotated[int, AtLeast(1)] = 2
    """Ours: decimals to which our one-sided score compares confidences, or those of a table that has fewer; from 8 on
    as float32 has them. The published score rounds nothing."""
    partial: tuple[Annotated[float, Share(zero=False)], ...] = (0.05, 0.1, 0.25)
    """Ours: shares of D_Q that models are trained on beside D_C, from which it is learnt what a share looks like;
    only with a control set."""
    negligible: Annotated[float, Share(zero=False, one=False)] = 0.1
    """Ours: forgotten is answered where a target may hold no more than this share of D_Q."""
    permutations: Annotated[int, AtLeast(1)] = 9999
    """Ours: draws of who is control, whose chance is the p-value of not forgotten."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance but for `query.secret`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.recipe  # its ranges are checked on construction
        check_unique("partial", self.partial)
        check_unique("targets", self.targets)
        if self.given.is_given:
            object.__setattr__(self, "targets", ())  # models that are given are audited, and none is trained for it
        elif not self.targets and "scores" in self.measures:
            raise ValueError("targets is empty; there must be at least one, or a given model or table of outputs")
        self._check_permutations()
        if not any(target.outside for target in self.targets):
            object.__setattr__(self, "outside", None)  # no such data set has to be there
        elif self.outside is None:
            raise ValueError("outside is none; it must be a data set for targets that are trained on it")
        catalog.check(str(self.network), Regularisers(self.dropout, self.batch_norm))

    def _check_permutations(self) -> None:
        """ValueError where no p-value, adjusted over the targets, could be small enough to accuse."""
        least = least_permutations(len(self.targets) or len(self.given.models) + len(self.given.outputs))
        if self.query.is_controlled and self.permutations < least:
            raise ValueError(
                f"permutations is {self.permutations}; it must be at least {least}, or no target could be not forgotten"
            )

    @property
    def recipe(self) -> Recipe:
        """How its networks are trained; ValueError where that is impossible."""
        return Recipe(self.epochs, self.batch, self.learning_rate, 0, self.schedule, self.optimiser)

    @property
    def partial_shares(self) -> tuple[float, ...]:
        """The shares of `partial` that no target has beside all of D_C: models are trained for them alone.

        None without a control set, where nothing is judged, so that no share has to be known.
        """
        if not self.query.is_controlled:
            return ()
        there = {
            target.query
            for target in self.targets
            if target.calibration == 1 and not target.outside and target.unlearning is None
        }
        return tuple(share for share in self.partial if share not in there)

    @property
    def parts(self) -> Iterator[Part]:
        """The parts of the data that are there: D_Q's pool, calibration and, where any target has it, outside."""
        yield self.query.pool
        yield self.calibration
        if self.outside is not None:
            yield self.outside

    @property
    def query_part(self) -> Part | Remainder:
        """D_Q: of the query set what is not held back."""
        return self.query.query_part(self.seed)

    @property
    def is_between_parties(self) -> bool:
        """Whether somebody else's model is judged by what is drawn here."""
        return self.given.is_given and self.query.is_controlled

    @property
    def has_unbound_tables(self) -> bool:
        """Whether tables of outputs are judged that nothing binds to a model."""
        return bool(self.given.outputs) and self.query.is_controlled and not self.given.bound_by

    @property
    def probes(self) -> ProbeSet:
        """D_Q and the control set, which every model is asked about."""
        return ProbeSet(self.query_part, self.query.control, self.query.derive_seed(self.seed, "handed out"))


def least_permutations(targets: int) -> int:
    """The fewest with which the smallest p-value, adjusted over so many targets, is at most LEVEL."""
    return math.ceil(max(1, targets) / LEVEL) - 1


def check_unique(name: str, values: tuple[object, ...]) -> None:
    """ValueError where a value of this field is there twice."""
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise ValueError(f"{name} has {twice} twice; each must be there once")


@dataclass(frozen=True)
class About:
    """What the tables do not say of the run: which targets there should be, and the paper's table that it repeats."""

    targets: tuple[NamedTarget, ...]
    published: str = ""
    copies: CopyCount = CopyCount()
    """The exact copies among the images of the query set and those held back of it."""
    chance: float | None = None
    """The accuracy of the best constant answer about D_Q."""
