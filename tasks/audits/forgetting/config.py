"""What a run of the audit is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tasks import seeds
from tasks.audits.forgetting.external_targets import ExternalTargets
from tasks.audits.forgetting.probe_set import ProbeSet
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.forgetting.target import Target
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Remainder
from tasks.models import catalog
from tasks.models.catalog import Network
from tasks.models.regularisers import Regularisers
from tasks.ranges import at_least, share, some_of
from tasks.training.recipe import OptimiserName, Recipe
from tasks.training.unlearning_config import UnlearningSettings

MeasureGroup = Literal["scores", "examples"]

LEAST = {"crop": 0, "replicates": 1, "decimals": 1, "link": 0, "permutations": 1, "seed": 0}
DEEP = ("densenet100", "resnet18")

# The columns of the paper's tables: D* is the query set, shares of the calibration set, all of it and of the query set.
SHARES = (0.1, 0.5, 1.0)
PUBLISHED = (
    Target(query=1.0),
    *(Target(calibration=share) for share in (0.5, 0.75, 1.0)),
    *(Target(query=share, calibration=1.0) for share in SHARES),
)


@dataclass(frozen=True)
class Forgetting:
    """Which data may have been forgotten, by which models, and how those that they are compared with are trained.

    The defaults are the published benchmark with a control set: `query` says what is to be forgotten (D_Q) and which
    images of the same source nobody trains on, `calibration` (D_C) comes from the same domain and shares no image with
    either, `outside` from another one. `targets` are trained here on shares of these, and may then be made to forget
    D_Q (`unlearning` has the settings of the methods). With `given` models of somebody else are audited, and no targets
    are trained.

    Query, calibration and target models have one design: `network` (`tasks.models.catalog`; one's own is
    package.module:factory) with its regularisers, trained for `epochs` with `batch` images a step by `optimiser` at
    `learning_rate` times the factors of `schedule`. It ends small: models that have not come to rest differ from one
    replicate to the next by more than what they were trained on. Where `crop` is above 0 training sees random squares
    of that side, and models are asked about central ones. Each is trained `replicates` times, from other seeds and on
    other shares. A training is a chain of links of `link` epochs each, from whose ends it goes on after an
    interruption; 0: one job.

    Confidences are compared to so many `decimals`, or to those of a table that has fewer; from 8 on as float32 has
    them, which is published. Models that know an image differ in how close to 1 they come, by chance and by how long
    they trained, and a distance that counts .9999 and .99999 as different counts that.

    Where there is a control set, models are trained on D_C and each share of D_Q in `partial`, too, from which it is
    learnt what a share looks like; a target of that kind serves as well. A target has not forgotten where it is surer
    of D_Q than of the control set by more than chance, as `permutations` draws of who is control show; it has where it
    may hold no more than `negligible` of D_Q. `seed` is the only source of chance, and says which images are held back:
    an owner who is not to know them must not know it.
    """

    query: QuerySet = QuerySet(Dataset("mnist"))
    calibration: Part = Part(Dataset("svhn-full#28x28#grey"))
    outside: Part | None = Part(Dataset("cifar10#28x28#grey"))
    targets: tuple[Target, ...] = (*PUBLISHED, Target(outside=1.0))
    unlearning: UnlearningSettings = UnlearningSettings()
    given: ExternalTargets = ExternalTargets()
    measures: tuple[MeasureGroup, ...] = ("scores",)
    network: Network = Network("cnn1")
    dropout: bool = False
    batch_norm: bool = False
    augmentation: bool = False
    crop: int = 0
    replicates: int = 5
    epochs: int = 20
    link: int = 0
    optimiser: OptimiserName = "adam"
    learning_rate: float = 1e-3
    schedule: tuple[tuple[int, float], ...] = ((16, 0.1),)
    batch: int = 128
    decimals: int = 2
    partial: tuple[float, ...] = (0.05, 0.1, 0.25)
    negligible: float = 0.1
    permutations: int = 9999
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, LEAST)
        _ = self.recipe  # its ranges are checked on construction
        share(self, "negligible", zero=False, one=False)
        check_partial(self.partial)
        some_of(self, "measures", MeasureGroup)
        if len(set(self.targets)) < len(self.targets):
            twice = next(target for target in self.targets if self.targets.count(target) > 1)
            raise ValueError(f"targets has {twice} twice; each must be there once")
        if self.given.there:
            object.__setattr__(self, "targets", ())  # models that are given are audited, and none is trained for it
        elif not self.targets and "scores" in self.measures:
            raise ValueError("targets is empty; there must be at least one, or a given model or table of outputs")
        if not any(target.outside for target in self.targets):
            object.__setattr__(self, "outside", None)  # no such data set has to be there
        elif self.outside is None:
            raise ValueError("outside is none; it must be a data set for targets that are trained on it")
        catalog.check(str(self.network), Regularisers(self.dropout, self.batch_norm))

    @property
    def recipe(self) -> Recipe:
        """How its networks are trained; ValueError where that is impossible."""
        return Recipe(self.epochs, self.batch, self.learning_rate, 0, self.schedule, self.optimiser)

    @property
    def trained_partial(self) -> tuple[float, ...]:
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
    def trained_on(self) -> Part | Remainder:
        """D_Q: of the query set what is not held back."""
        return self.query.trained_on(self.seed)

    @property
    def probes(self) -> ProbeSet:
        """D_Q and the control set, which every model is asked about."""
        return ProbeSet(self.trained_on, self.query.control, seeds.derive(self.seed, "handed out"))


def check_partial(shares: tuple[float, ...]) -> None:
    """ValueError unless these are different shares above 0 and at most 1."""
    for of in shares:
        if not 0 < of <= 1:
            raise ValueError(f"partial has {of}; each must be above 0 and at most 1")
    if len(set(shares)) < len(shares):
        twice = next(of for of in shares if shares.count(of) > 1)
        raise ValueError(f"partial has {twice} twice; each must be there once")


def tiny(config: Forgetting) -> Forgetting:
    """The same audit on embedded data, in seconds; of a slow network as little as is."""
    deep, plain = config.network.name in DEEP, config.network.name == "mlp1"
    size = "#8x8" if deep else "" if plain else "#16x16"
    count = 120 if plain else 40
    return replace(
        config,
        query=QuerySet(Dataset(f"digits{size}"), 0, count, held_back=0.5 if config.query.is_controlled else 0.0),
        calibration=Part(Dataset(f"digits-on-photos{size}"), count, count),
        outside=None if config.outside is None else Part(Dataset(f"photos{size}"), 0, count),
        crop=(4 if deep else 12) if config.crop else 0,
        replicates=min(config.replicates, 2),
        epochs=min(config.epochs, 1 if deep else 2),
        link=1 if config.link else 0,
        permutations=min(config.permutations, 199),
    )
