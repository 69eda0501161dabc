"""What a run of the audit is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

from tasks.audits.unique_feature.external_models import ExternalModels
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, Glyph
from tasks.external.bound_draw import Draw, derive_secret_seed, describe_draw
from tasks.models import catalog
from tasks.models.catalog import Network, Regularisers
from tasks.training.classifier import Training, check_private
from tasks.training.recipe import OptimiserName, Privacy, Recipe
from tasks.worker.files import File

Shape = tuple[int, int, int]  # height, width, channels
ProbeSplit = Literal["test", "both"]
RandomKind = Literal["noise", "family"]
Measure = Literal["scores", "family", "ranks", "course", "latents", "influence", "pictures"]
Choice = Literal["random", "self-influence"]


@dataclass(frozen=True)
class UniqueFeature(Ranged):
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
    width: Annotated[float, Finite()] = 1.0
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
    """Ours: what the canaries carry instead of what is asked about; none: the same. Another one makes a null."""
    drawn: bool = False
    """Ours: whether every canary carries, and is asked about, a feature of its own drawn from the family; ranks are
    then exact."""
    random: RandomKind = "noise"
    """The random feature z_r beside which a feature is judged: noise, or another member of the family (footnote 1)."""
    canaries: Annotated[int, AtLeast(0)] = 100
    """Training images that carry the feature, one per pair of trainings; 0: models of the data as they stand are
    asked."""
    choice: Choice = "random"
    """How canaries are chosen: at random, or those of highest and lowest self-influence."""
    neighbours_left_out: Annotated[int, AtLeast(0)] = 0
    """Ours: how many training images both trainings of a pair leave out: those nearest to the canary's own, by the
    Euclidean distance of pixels, of equally near ones the first."""
    seeds: Annotated[int, AtLeast(1)] = 1
    """Training seeds per canary."""
    one_seed: bool = False
    """Whether all canaries share their training seeds."""
    evaluations: Annotated[int, AtLeast(1)] = 1
    """How often every evaluation is drawn anew."""
    measures: tuple[Measure, ...] = ("scores",)
    """What is measured."""
    family: Family = Family()
    """Ours: the other features that a feature is ranked among."""
    probes: Annotated[int, AtLeast(0)] = 1000
    """Ours: the first so many probe images, for the family's scores; 0: all."""
    given: ExternalModels = ExternalModels()
    """Ours: models of somebody else, which are asked instead of training any."""
    first_layer: bool = False
    """Ours: whether models that are asked alone are judged by the weights of their dense first layer, in which the
    feature is ranked for `given.label`, on images of it in the probe set."""
    beside_plain: bool = False
    """Whether the regularised network is compared with the same one without its regularisers."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Ours: train on the first so many training images; 0: all."""
    epochs: Annotated[int, AtLeast(1)] = 500
    """Epochs of training, at most."""
    link: Annotated[int, AtLeast(0)] = 0
    """Ours: epochs per link of the chain that a training is, from whose ends it goes on after an interruption; 0:
    one job."""
    patience: Annotated[int, AtLeast(0)] = 10
    """Epochs without a lower validation loss after which training stops and goes back to the best; 0: never."""
    optimiser: OptimiserName = "adam"
    """The optimiser."""
    learning_rate: Annotated[float, Finite()] = 3e-4
    """The learning rate, at first."""
    schedule: tuple[tuple[int, float], ...] = ()
    """Pairs (epoch, factor): after so many epochs the learning rate is the first one times the factor."""
    batch: Annotated[int, AtLeast(1)] = 128
    """Images a step."""
    privacy: Privacy | None = None
    """Ours: train with differential privacy (mlp1 and cnn1); none: without."""
    stopping_level: Annotated[float, Share(one=False)] = 0.0
    """Ours: the probability, at most, of accusing a procedure that keeps nothing, though the run looks after every pair
    and ends once it accuses; 0: the run goes to its end."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.given.there:
            object.__setattr__(self, "data", None)  # nothing is trained, so no data set has to be there
        glyph = self.feature
        if self.given.nonce and isinstance(glyph, Glyph) and glyph.kind == "random" and not glyph.seed:
            object.__setattr__(self, "feature", replace(glyph, seed=self.derive_seed("glyph")))

    def conflicts(self) -> Iterator[str]:
        _ = self.recipe  # its schedule is checked on construction
        if self.beside_plain and not self.regularised:
            yield "beside_plain is on; it must be off for a network without a regulariser"
        if "influence" in self.measures and self.choice != "self-influence" and self.canaries:
            yield "measures has influence; choice must be self-influence for it"
        if "latents" in self.measures and self.network.name != "mlp1":
            yield f"measures has latents; network is {self.network}, and must be mlp1 for it"
        if self.data is None and not self.given.there:
            yield "data is none; it must be a data set unless models are given"
        catalog.check(str(self.network), Regularisers(self.dropout, self.batch_norm), self.width)
        if self.given.there and self.width != 1:
            yield f"width is {self.width:g} and models are given; it must be 1 where nothing is trained"
        if self.family.look_alikes and not self.asks_models:
            yield (
                f"family.look_alikes is {self.family.look_alikes}; it must be 0 where pairs are trained, since it is "
                "known what their canaries carry"
            )
        if self.neighbours_left_out:
            yield from self._left_out_conflicts()
        if self.privacy is not None:
            yield from self._private_conflicts()
        if self.stopping_level:
            yield from self._stopping_conflicts()
        if self.first_layer:
            yield from self._first_layer_conflicts()

    def _first_layer_conflicts(self) -> Iterator[str]:
        """Where there are no weights to read, or another rank would decide."""
        if not self.asks_models:
            yield "first_layer is on and pairs are trained; it must be off, or canaries 0"
        if self.given.hands_out:
            yield "first_layer is on; models must be given for it, since outputs hold no weights"
        if self.given.references:
            yield "first_layer is on and references are given; a model must be judged by one of the two"
        if self.given.label is None:
            yield "first_layer is on and label is none; it must be the class of the image that carried the feature"

    def _left_out_conflicts(self) -> Iterator[str]:
        """Where no canary is known whose neighbours could be left out, or that would not be private."""
        count = self.neighbours_left_out
        if self.asks_models:
            yield f"neighbours_left_out is {count}; it must be 0 where no canary is trained on"
        if self.choice != "random":
            yield (
                f"neighbours_left_out is {count} and choice is {self.choice}; choice must be random, which says before "
                "any training whose neighbours they are"
            )
        if self.privacy is not None:
            yield (
                f"neighbours_left_out is {count} and privacy is given; it must be 0: epsilon does not count what the "
                "choice of images says of the canary"
            )

    def _private_conflicts(self) -> Iterator[str]:
        """Where its networks cannot train with privacy, or what is measured would not be private."""
        check_private(self.network, self.batch_norm, self.recipe)
        if self.given.there:
            yield "privacy is given and so are models; privacy must be none where nothing is trained"
        if self.link:
            yield f"privacy is given and link is {self.link}; it must be 0: private training is one job"
        if self.choice != "random":
            yield f"privacy is given and choice is {self.choice}; it must be random"
        if "course" in self.measures:
            yield "privacy is given and measures has course; they must be without it: it trains by itself"

    def _stopping_conflicts(self) -> Iterator[str]:
        """Where pairs have no exact ranks of their own, each independent of those before it."""
        until = f"a run ends once it is decided (--until decided, stopping_level={self.stopping_level:g})"
        if self.asks_models:
            yield f"{until} and no canary is trained on; leave that out where no pair is trained"
            return
        if not self.drawn:
            yield (
                f"{until} and the feature is chosen, which has no exact rank to bet on; add drawn=true, so that every "
                "canary has a feature drawn from its family"
            )
        if self.choice != "random":
            yield f"{until} and choice is {self.choice}; add choice=random, so that fewer canaries are the first"
        if self.seeds != 1 or self.one_seed:
            yield f"{until}; add seeds=1 one_seed=false, so that every pair is a sample"

    @property
    def recipe(self) -> Recipe:
        """How its networks are trained; ValueError where that is impossible."""
        return Recipe(self.epochs, self.batch, self.learning_rate, self.patience, self.schedule, self.optimiser)

    @property
    def training(self) -> Training:
        """The training of a network without any canary, of any seed."""
        return Training(
            data=self.trained_on,
            network=self.network,
            dropout=self.dropout,
            batch_norm=self.batch_norm,
            augmentation=self.augmentation,
            seed=0,
            examples=self.examples,
            epochs=self.epochs,
            patience=self.patience,
            optimiser=self.optimiser,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            batch=self.batch,
            privacy=self.privacy,
            width=self.width,
        )

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
        """Of the images that models are asked about; that of the training images is read from these."""
        return self.given.shape or load(self.trained_on).shape

    @property
    def picture_order(self) -> int:
        """The seed of the order in which an owner gets the pictures; 0 where no owner gets any."""
        return self.derive_seed("order") if self.given.hands_out else 0

    def derive_seed(self, name: str) -> int:
        """The seed of what is drawn between two parties."""
        return derive_secret_seed(self.seed, name, self.given.secret, self.given.nonce)

    @property
    def has_bound_glyph(self) -> bool:
        """Whether the feature is the glyph that follows from the secret and the nonce: no other random one passes."""
        return bool(self.given.nonce) and isinstance(self.feature, Glyph) and self.feature.kind == "random"

    @property
    def draw(self) -> Draw:
        """What the draw of the family, of the order of pictures and of a random glyph follows from."""
        given = self.given
        unused = ("feature.seed",) if self._has_drawn_glyph else ()
        return Draw(self._drawn_from, self, self.seed, given.secret, given.nonce, given.commitment, unused)

    @property
    def _has_drawn_glyph(self) -> bool:
        """Whether the draw decides which random glyph the feature is, or will once a nonce is named."""
        glyph = self.feature
        if not isinstance(glyph, Glyph) or glyph.kind != "random":
            return False
        return glyph.seed == (self.derive_seed("glyph") if self.given.nonce else 0)

    def _drawn_from(self) -> tuple[object, ...]:
        """A commitment leaves open which random glyph it is, and with a nonce it must be the one that is drawn."""
        feature: Feature = self.feature
        if isinstance(feature, Glyph) and (not self.given.nonce or feature.seed == self.derive_seed("glyph")):
            feature = replace(feature, seed=0)
        probe = (self.probe.identity(), self.probe_split, self.probes)
        return (*probe, self.random, *feature_content(feature), repr(self.family))

    def describe_draw(self) -> str:
        """Who chose the draw of the family, and of a random glyph, in sentences."""
        what = "The draw of the feature and its family" if self.has_bound_glyph else "The draw of the feature's family"
        return describe_draw(what, self.given.commitment, self.given.nonce, self.given.nonce_by)

    def stream(self, *path: str | int) -> tuple[str | int, ...]:
        """The path of a stream of random numbers: canaries with features of their own are other images, of other seeds.

        So those of a run with one feature and of a run with drawn ones are independent samples.
        """
        return ("drawn", *path) if self.drawn else path

    def training_stream(self, number: int, replicate: int) -> tuple[str | int, ...]:
        """The stream of the seed of a canary's training with its replicate, counted from 0."""
        return self.stream("training", 0 if self.one_seed else number, *((replicate,) if replicate else ()))

    def asks_for(self, *measures: Measure) -> bool:
        """Whether any of these is measured, of the pairs that are trained."""
        return not self.asks_models and any(measure in self.measures for measure in measures)

    def plain(self) -> UniqueFeature:
        """The same without regularisers."""
        return replace(self, dropout=False, batch_norm=False, augmentation=False, beside_plain=False)


def feature_content(feature: Feature) -> list[object]:
    """The feature's kind and fields, files by their digests, as a commitment names it."""
    values = (getattr(feature, each.name) for each in fields(feature))
    return [type(feature).__name__, *(value.identity() if isinstance(value, File) else value for value in values)]
