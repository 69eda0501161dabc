"""The config of the audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tasks import seeds
from tasks.audits.deja_vu.drawing import Drawing
from tasks.audits.deja_vu.given_encoder import GivenEncoder
from tasks.datasets.boxed.crops import CropName
from tasks.datasets.boxed.partition import Partition, PartName
from tasks.datasets.boxed.training_images import TrainingImages
from tasks.datasets.dataset import Dataset
from tasks.diffusion.diffusion_config import Diffusion
from tasks.ranges import at_least, one_of, share, some_of
from tasks.self_supervised.criterion import (
    BYOL,
    DINO,
    BarlowTwins,
    Criterion,
    SimCLR,
    Supervised,
    VICReg,
)
from tasks.self_supervised.pretraining_config import Augmentation, OptimiserName, Precision, Pretraining

CriterionName = Literal["vicreg", "simclr", "barlow", "byol", "dino", "supervised"]
Trained = Literal["own", "other"]
MeasureGroup = Literal["scores", "probe", "retrieval", "reconstruction"]
PARTS: dict[Trained, tuple[PartName, PartName]] = {"own": ("A", "B"), "other": ("other A", "other B")}
LEAST = {  # those of a training and of the partition are theirs
    "smallest": 1,
    "link": 0,
    "fine_tuning": 0,
    "partings": 199,  # fewer could not tell enough
    "resamples": 1,
    "shown": 0,
    "seed": 0,
}


@dataclass(frozen=True)
class DejaVu:
    """Which pictures two models are trained on, how, and what is inferred of them from their backgrounds.

    The defaults are the published setting. `data` has pictures with boxes around their objects; with `correlation` the
    digits of digits-on-photos are told by their backgrounds that often. It is parted by `seed` into A and B of
    `per_class` pictures of each class, and `public` pictures X with known labels (0: all others), which leave room for
    sets of `largest` per class, so that X is the same whatever the size. `validation` pictures (0: those that come with
    the data, else what is left) are for the linear probe. One model is trained on A, one on B; with `trained` other on
    two further sets drawn alike, so that neither has seen A or B: the null. At most `attacked` pictures of A and of B
    (0: all with boxes) are cropped: `crop` is the largest rectangle without an object (periphery), the largest one of
    the strips between the boxes' edges (strips), or the lower left corner, which needs no boxes. Rectangles
    whose shorter side is below `smallest` pixels are left out; a corner never is.

    A model is `backbone` with a `projector` of these widths, trained by `criterion`, whose settings have their names:
    `invariance`, `variance`, `covariance` (vicreg), `temperature` (simclr), `redundancy` (barlow), `momentum` (byol,
    dino). Training takes `epochs` epochs with `batch` pictures a step, computed in `accumulate` parts, and the learning
    rate `base_learning_rate` x batch / 256 after `warmup` epochs. It is a chain of links of `link` epochs (0: one job).
    After the epochs `recorded`, and always after the last, the labels of the crops are inferred. With `fine_tuning` the
    models are then trained further on labels for so many epochs, after each of which they are attacked, too.

    `layers` count from the backbone, 0, to the projector's output (empty: this alone); `k` are the numbers of
    neighbours that vote. The score is that of the `confident` percent most confident pictures. The first of `layers`
    and of `k` and the last epoch decide.

    `measures` adds the linear probe, the pictures retrieved (`shown` of each kind in the report), or reconstructions,
    by models that are trained as `diffusion` says, of the pictures that `drawing` says.

    Where somebody else's encoder is `given`, it was trained on A, and its reference alone is trained here, on a set
    disjoint from A and B, and asked after its last epoch, at the first of `layers`. Where the data says what each
    picture was to that encoder, that is taken for the parts. The probe and reconstructions, which need weights, are
    left out, as are the shares of memorised pictures, which need two models that differ in nothing else.

    Intervals are of `resamples` bootstraps over pictures, p of `partings` redrawn partings. It is memorised where p is
    at most 0.025 and the interval of the score is above 0, and not seen where it lies below `negligible`. `seed` is the
    only source of chance.
    """

    data: Dataset = Dataset("imagenet")
    correlation: float = 0.0
    given: GivenEncoder = GivenEncoder()
    measures: tuple[MeasureGroup, ...] = ("scores", "probe", "retrieval")
    trained: Trained = "own"
    per_class: int = 300
    public: int = 500_000
    largest: int = 500
    attacked: int = 0
    validation: int = 0
    crop: CropName = "periphery"
    smallest: int = 100
    criterion: CriterionName = "vicreg"
    invariance: float = 25.0
    variance: float = 25.0
    covariance: float = 1.0
    temperature: float = 0.15
    redundancy: float = 0.0051
    momentum: float = 0.996
    backbone: str = "resnet101"
    projector: tuple[int, ...] = (8192, 8192, 8192)
    augmentation: Augmentation = Augmentation()
    epochs: int = 1000
    recorded: tuple[int, ...] = ()
    link: int = 50
    batch: int = 1024
    accumulate: int = 1
    optimiser: OptimiserName = "lars"
    base_learning_rate: float = 0.2
    warmup: int = 10
    weight_decay: float = 1e-6
    precision: Precision = "float32"
    fine_tuning: int = 0
    layers: tuple[int, ...] = ()
    k: tuple[int, ...] = (100,)
    confident: int = 20
    diffusion: Diffusion = Diffusion()
    drawing: Drawing = Drawing()
    shown: int = 10
    negligible: float = 0.02
    partings: int = 1999
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, LEAST)
        share(self, "correlation")
        share(self, "negligible", zero=False, one=False)
        one_of(self, "criterion", CriterionName)
        one_of(self, "trained", Trained)
        one_of(self, "crop", CropName)
        some_of(self, "measures", MeasureGroup)
        if "scores" not in self.measures:
            raise ValueError(f"measures is {self.measures}; scores must be among them")
        if self.given.there and self.trained == "other":
            raise ValueError("trained is other; that is for models which are all trained here, and one is given")
        if self.fine_tuning and self.criterion == "supervised":
            raise ValueError(f"fine_tuning is {self.fine_tuning}; it must be 0, since a supervised model knows labels")
        if not 1 <= self.confident <= 100:
            raise ValueError(f"confident is {self.confident}; it must be a percentage from 1 to 100")
        if not self.k or min(self.k) < 1:
            raise ValueError(f"k is {self.k}; it must be numbers of neighbours of at least 1")
        if self.recorded:  # what decides is after the last epoch
            object.__setattr__(self, "recorded", tuple(sorted({*self.recorded, self.epochs})))
        object.__setattr__(self, "layers", tuple(dict.fromkeys(self.layers)))
        object.__setattr__(self, "k", tuple(dict.fromkeys(self.k)))
        if any(not 0 <= layer <= self.top for layer in self.layers):
            raise ValueError(f"layers is {self.layers}; it must be layers from 0, the backbone, to {self.top}")
        if self.given.there and "reconstruction" in self.measures:
            raise ValueError(
                "measures has reconstruction and an encoder is given; drawings are of encoders that are trained here"
            )
        if self.drawing.steps > self.diffusion.steps:
            raise ValueError(
                f"drawing.steps is {self.drawing.steps}; it must be at most diffusion.steps, {self.diffusion.steps}"
            )
        if "reconstruction" in self.measures and self.drawing.neighbours > max(self.k):
            raise ValueError(
                f"drawing.neighbours is {self.drawing.neighbours}; it must be at most the largest k, {max(self.k)}"
            )
        _ = self.partition, self.pretraining("A")  # their ranges are checked on construction

    @property
    def partition(self) -> Partition:
        """How the data is parted."""
        return Partition(
            per_class=self.per_class,
            public=self.public,
            attacked=self.attacked,
            validation=self.validation,
            largest=self.largest,
            seed=seeds.derive(self.seed, "parts"),
        )

    @property
    def criterion_settings(self) -> Criterion:
        """The criterion with those settings that are its own."""
        match self.criterion:
            case "vicreg":
                return VICReg(self.invariance, self.variance, self.covariance)
            case "simclr":
                return SimCLR(self.temperature)
            case "barlow":
                return BarlowTwins(self.redundancy)
            case "byol":
                return BYOL(momentum=self.momentum)
            case "dino":
                return DINO(momentum=self.momentum)
            case "supervised":
                return Supervised()
        raise AssertionError(self.criterion)  # it is checked on construction

    @property
    def asked_layers(self) -> tuple[int, ...]:
        """The layers whose embeddings are asked, the decisive one first."""
        return self.layers or (self.top,)

    @property
    def top(self) -> int:
        """The last layer: the projector's output, or the logits of a supervised model."""
        return len(self.projector) + (self.criterion == "supervised")

    def pretraining(self, part: PartName) -> Pretraining:
        """The training on this part, up to its last epoch."""
        return Pretraining(
            images=TrainingImages(self.data, self.correlation, self.partition, part),
            criterion=self.criterion_settings,
            backbone=self.backbone,
            projector=self.projector,
            augmentation=self.augmentation,
            epochs=self.epochs,
            schedule=self.epochs,
            batch=self.batch,
            accumulate=self.accumulate,
            optimiser=self.optimiser,
            base_learning_rate=self.base_learning_rate,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            precision=self.precision,
            recorded=self.recorded,
            seed=seeds.derive(self.seed, "training", part),
        )
