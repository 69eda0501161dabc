"""What a run of the audit is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from tasks.audits.unique_feature.external_models import ExternalModels
from tasks.audits.unique_feature.probe_images import ProbeSplit, RandomKind, Shape
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, Glyph
from tasks.job import ADDED_LATER
from tasks.models import catalog
from tasks.models.catalog import Network, Regularisers
from tasks.ranges import check_minimums, one_of, some_of
from tasks.training.classifier import check_private
from tasks.training.privacy import Privacy
from tasks.training.recipe import OptimiserName, Recipe

Measure = Literal["scores", "family", "ranks", "course", "latents", "influence", "pictures"]
Choice = Literal["random", "self-influence"]

SLOW = ("cnn1", "cnn2", "densenet100", "resnet18")  # networks that take seconds for what mlp1 takes no time for
DEEP = ("densenet100", "resnet18")
LEAST = {
    "canaries": 0,
    "neighbours_left_out": 0,
    "seeds": 1,
    "evaluations": 1,
    "probes": 0,
    "examples": 0,
    "link": 0,
    "seed": 0,
}


@dataclass(frozen=True)
class UniqueFeature:
    """Which canaries, in which data, for which network, and what is measured.

    The defaults are the published setting. Trainings that are traced or followed epoch by epoch are one job always,
    whatever `link` says. With `ranks` measured the feature is ranked among all of its kind by what it did to the slopes
    of its pixels, and where it is a glyph that rank decides which canaries are called.
    """

    data: Dataset | None = Dataset("mnist")
    """The images to train on; none where models are given."""
    probe: Dataset = Dataset("cifar10")
    """The images that models are asked about, beside the training images of the canary's class."""
    probe_split: ProbeSplit = "test"
    """Which split of `probe` is asked about."""
    network: Network = Network("mlp1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""
    width: float = field(default=1.0, metadata={ADDED_LATER: True})
    """Ours: the factor on the units and channels of its hidden layers (mlp1, cnn1 and cnn2), rounded to whole ones."""
    dropout: bool = False
    """Whether it is trained with dropout, as in Table 3."""
    batch_norm: bool = False
    """Whether it has batch norm, as in Table 3."""
    augmentation: bool = False
    """Whether training images are shifted and mirrored at random, as in Table 3."""
    feature: Feature = Glyph()
    """What the models are asked about: a letter, words or a picture at a fixed place."""
    burnt: Feature | None = None
    """Ours: what the canaries carry instead of `feature`; none: the same. Another one makes a null."""
    drawn: bool = False
    """Ours: whether every canary carries, and is asked about, a feature of its own drawn from the family; ranks are
    then exact."""
    random: RandomKind = "noise"
    """The random feature z_r beside which a feature is judged: noise, or another member of the family (footnote 1)."""
    canaries: int = 100
    """Training images that carry the feature, one per pair of trainings; 0: models of the data as they stand are
    asked."""
    choice: Choice = "random"
    """How canaries are chosen: at random, or those of highest and lowest self-influence."""
    neighbours_left_out: int = field(default=0, metadata={ADDED_LATER: True})
    """Ours: how many training images both trainings of a pair leave out: those nearest to the canary's own, by the
    Euclidean distance of pixels, of equally near ones the first."""
    seeds: int = 1
    """Training seeds per canary."""
    one_seed: bool = False
    """Whether all canaries share their training seeds."""
    evaluations: int = 1
    """How often every evaluation is drawn anew."""
    measures: tuple[Measure, ...] = ("scores",)
    """What is measured."""
    family: Family = Family()
    """Ours: the other features that a feature is ranked among."""
    probes: int = 1000
    """Ours: the first so many probe images, for the family's scores; 0: all."""
    given: ExternalModels = ExternalModels()
    """Ours: models of somebody else, which are asked instead of training any."""
    beside_plain: bool = False
    """Whether the regularised network is compared with the same one without its regularisers."""
    examples: int = 0
    """Ours: train on the first so many training images; 0: all."""
    epochs: int = 500
    """Epochs of training, at most."""
    link: int = 0
    """Ours: epochs per link of the chain that a training is, from whose ends it goes on after an interruption; 0:
    one job."""
    patience: int = 10
    """Epochs without a lower validation loss after which training stops and goes back to the best; 0: never."""
    optimiser: OptimiserName = "adam"
    """The optimiser."""
    learning_rate: float = 3e-4
    """The learning rate, at first."""
    schedule: tuple[tuple[int, float], ...] = ()
    """Pairs (epoch, factor): after so many epochs the learning rate is the first one times the factor."""
    batch: int = 128
    """Images a step."""
    privacy: Privacy | None = field(default=None, metadata={ADDED_LATER: True})
    """Ours: train with differential privacy (mlp1 and cnn1); none: without."""
    seed: int = 0
    """Ours: the only source of chance."""

    def __post_init__(self) -> None:
        check_minimums(self, LEAST)
        _ = self.recipe  # its ranges are checked on construction
        one_of(self, "probe_split", ProbeSplit)
        one_of(self, "random", RandomKind)
        one_of(self, "choice", Choice)
        some_of(self, "measures", Measure)
        if self.drawn and self.burnt is not None:
            raise ValueError("burnt is given and drawn is on; a canary's feature must be the one or the other")
        if self.beside_plain and not self.regularised:
            raise ValueError("beside_plain is on; it must be off for a network without a regulariser")
        if "influence" in self.measures and self.choice != "self-influence" and self.canaries:
            raise ValueError("measures has influence; choice must be self-influence for it")
        if "latents" in self.measures and self.network.name != "mlp1":
            raise ValueError(f"measures has latents; network is {self.network}, and must be mlp1 for it")
        if self.given.there:
            object.__setattr__(self, "data", None)  # nothing is trained, so no data set has to be there
        elif self.data is None:
            raise ValueError("data is none; it must be a data set unless models are given")
        catalog.check(str(self.network), Regularisers(self.dropout, self.batch_norm), self.width)
        if self.given.there and self.width != 1:
            raise ValueError(f"width is {self.width:g} and models are given; it must be 1 where nothing is trained")
        if self.neighbours_left_out:
            self._check_left_out()
        if self.privacy is not None:
            self._check_private()

    def _check_left_out(self) -> None:
        """ValueError where no canary is known whose neighbours could be left out, or that would not be private."""
        count = self.neighbours_left_out
        if self.asks_models:
            raise ValueError(f"neighbours_left_out is {count}; it must be 0 where no canary is trained on")
        if self.choice != "random":
            raise ValueError(
                f"neighbours_left_out is {count} and choice is {self.choice}; choice must be random, which says before "
                "any training whose neighbours they are"
            )
        if self.privacy is not None:
            raise ValueError(
                f"neighbours_left_out is {count} and privacy is given; it must be 0: epsilon does not count what the "
                "choice of images says of the canary"
            )

    def _check_private(self) -> None:
        """ValueError where its networks cannot train with privacy, or what is measured would not be private."""
        check_private(self.network, self.batch_norm, self.recipe)
        if self.given.there:
            raise ValueError("privacy is given and so are models; privacy must be none where nothing is trained")
        if self.link:
            raise ValueError(f"privacy is given and link is {self.link}; it must be 0: private training is one job")
        if self.choice != "random":
            raise ValueError(f"privacy is given and choice is {self.choice}; it must be random")
        if "course" in self.measures:
            raise ValueError("privacy is given and measures has course; they must be without it: it trains by itself")

    @property
    def recipe(self) -> Recipe:
        """How its networks are trained; ValueError where that is impossible."""
        return Recipe(self.epochs, self.batch, self.learning_rate, self.patience, self.schedule, self.optimiser)

    @property
    def trained_on(self) -> Dataset:
        """The data set, of a config that trains."""
        assert self.data is not None
        return self.data

    @property
    def carried(self) -> Feature:
        """The feature that the canaries carry."""
        return self.feature if self.burnt is None else self.burnt

    @property
    def regularised(self) -> bool:
        return self.dropout or self.batch_norm or self.augmentation

    @property
    def asks_models(self) -> bool:
        """Whether single models are asked instead of pairs: external ones, or models trained on the unchanged data."""
        return self.given.there or not self.canaries

    @property
    def shape(self) -> Shape:
        """Of the images that models are asked about."""
        return self.given.shape or load(self.trained_on).shape

    def asks_for(self, *measures: Measure) -> bool:
        """Whether any of these is measured, of the pairs that are trained."""
        return not self.asks_models and any(measure in self.measures for measure in measures)

    def plain(self) -> UniqueFeature:
        """The same without regularisers."""
        return replace(self, dropout=False, batch_norm=False, augmentation=False, beside_plain=False)


def tiny(config: UniqueFeature) -> UniqueFeature:
    """The same audit on embedded data, in seconds; of a slow network as little as is."""
    slow, deep = config.network.name in SLOW, config.network.name in DEEP
    return replace(
        config,
        data=Dataset("digits#8x8" if deep else "digits#16x16" if slow else "digits"),
        probe=Dataset("photos"),
        canaries=min(config.canaries, 1 if deep else 2 if slow else 3),
        neighbours_left_out=min(config.neighbours_left_out, 10),
        seeds=min(config.seeds, 2),
        evaluations=min(config.evaluations, 2),
        family=replace(config.family, count=min(config.family.count, 20)),
        probes=min(config.probes, 20) or 20,
        examples=60 if slow else 300,
        epochs=min(config.epochs, 1 if deep else 2),
        link=1 if config.link else 0,
    )
