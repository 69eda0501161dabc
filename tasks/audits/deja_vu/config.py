"""The config of the audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from tasks.contract.extras import Extra
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import AtLeast, Between, Ranged, Share, UpTo
from tasks.datasets.boxed.crops import CORNER_SHARE, CropName
from tasks.datasets.boxed.partition import Partition, PartName, TrainingImages
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.diffusion.diffusion_config import Diffusion
from tasks.diffusion.pixel_classifier import PixelClassifier
from tasks.external.model_file import EncoderInterface, ModelFile
from tasks.numerics import seeds
from tasks.self_supervised.pretraining_config import (
    BYOL,
    DINO,
    Augmentation,
    Backbone,
    BarlowTwins,
    Criterion,
    OptimiserName,
    Precision,
    Pretraining,
    SimCLR,
    Supervised,
    VICReg,
    backbone_extras,
)
from tasks.training.recipe import Count, Rate
from tasks.worker.files import File

CriterionName = Literal["vicreg", "simclr", "barlow", "byol", "dino", "supervised"]
Trained = Literal["own", "other"]
MeasureGroup = Literal["scores", "probe", "retrieval", "reconstruction"]
PARTS: dict[Trained, tuple[PartName, PartName]] = {"own": ("A", "B"), "other": ("other A", "other B")}


@dataclass(frozen=True)
class Drawing(Ranged):
    """Which pictures are reconstructed, and who says what a drawing shows.

    Meehan et al. 2023, appendix A.2.4: 5 neighbours; 100 steps are those of the released code of Bordes et al. 2022.
    """

    pictures: Annotated[int, AtLeast(0)] = 500
    """Pictures of each set that are reconstructed, drawn by chance among those with a crop; 0: all."""
    neighbours: Annotated[int, AtLeast(1)] = 5
    """Public pictures nearest to the crop whose mean backbone embedding is drawn."""
    steps: Annotated[int, AtLeast(1)] = 100
    """Steps of a drawing."""
    link: Annotated[int, AtLeast(0)] = 10
    """Epochs per link of the diffusion model's training; 0: one job."""
    classifier: PixelClassifier = PixelClassifier()
    """The classifier that says what a drawing shows."""


@dataclass(frozen=True)
class GivenEncoder(Ranged):
    """The encoder that the audit asks where it trains no target, and its reference.

    It was trained on A, and on nothing of B. The reference is given, or else the one that is trained here as the
    audit's config says, on a disjoint set; of several `references` the first, third, ... are trained on one set, the
    second, fourth, ... on another one, each from a seed of its own.
    """

    model: ModelFile | None = None
    """The encoder's file, which is asked here through `interface`."""
    embeddings: File | None = None
    """A table of what an encoder that its owner keeps gave for the pictures handed out (Parquet: image, embedding)."""
    interface: EncoderInterface = EncoderInterface()
    """Inputs and outputs of the encoder."""
    reference: ModelFile | None = None
    """The file of another encoder, which was trained on neither A nor B."""
    reference_embeddings: File | None = None
    """A table of that encoder's embeddings."""
    repeated: Annotated[int, AtLeast(0)] = 0
    """Public pictures that are handed out once more, whole among the crops, where their embeddings must be the same; a
    table without them can accuse and not clear."""
    references: Annotated[int, AtLeast(1)] = 1
    """References that are trained here where none is given; with 2 or more the encoder's rank among them is told,
    too."""

    def conflicts(self) -> Iterator[str]:
        if self.model is not None and self.embeddings is not None:
            yield "model and embeddings are both given; they are two ways to ask one encoder: give one"
        if self.reference is not None and self.reference_embeddings is not None:
            yield "reference and reference_embeddings are both given; give one"
        for name, model in (("model", self.model), ("reference", self.reference)):
            if model is not None and model.is_folder:
                yield (
                    f"{name} is {model.name}, an image classifier, which gives no embeddings; export its encoder to a "
                    "file with torch.export.save"
                )
        if not self.there and (self.has_reference or self.references > 1):
            yield "a reference is given, and no encoder to compare it with; give model or embeddings"
        if self.has_reference and self.references > 1:
            yield f"references is {self.references}, and one is given; leave it out and they are trained here"
        asks = self.model is not None or self.reference is not None
        if self.interface != EncoderInterface() and not asks:
            yield "interface says how to ask an encoder, and there is none; give model or reference"

    @property
    def there(self) -> bool:
        """Whether somebody else's encoder is audited."""
        return self.model is not None or self.embeddings is not None

    @property
    def has_reference(self) -> bool:
        """Whether the reference is given, too, so that nothing is trained."""
        return self.reference is not None or self.reference_embeddings is not None


@dataclass(frozen=True)
class DejaVu(Ranged):
    """Which pictures two models are trained on, how, and what is inferred of them from their backgrounds.

    The defaults are the published setting. The data are parted by `seed` into A, B and public pictures X; one model is
    trained on A, one on B. The first of `layers` and of `k` and the last epoch decide.

    Where somebody else's encoder is `given`, it was trained on A, and its reference alone is trained here, on a set
    disjoint from A and B, and asked after its last epoch, at the first of `layers`. Where the data says what each
    picture was to that encoder, that is taken for the parts. The probe and reconstructions, which need weights, are
    left out, as are the shares of memorised pictures, which need two models that differ in nothing else.
    """

    data: Dataset = Dataset("imagenet")
    """Pictures with boxes around their objects."""
    correlation: Annotated[float, Share()] = 0.0
    """Ours: how often the digits of digits-on-photos are told by their backgrounds."""
    given: GivenEncoder = GivenEncoder()
    """Ours: an encoder of somebody else, which is audited instead of the one trained on A."""
    measures: tuple[MeasureGroup, ...] = ("scores", "probe", "retrieval")
    """What is measured besides scores: a linear probe, the pictures retrieved, or reconstructions."""
    trained: Trained = "own"
    """Ours: own trains on A and B; other on two further sets drawn alike, so that neither has seen A or B: the null."""
    per_class: Annotated[int, AtLeast(1)] = 300
    """Pictures of each class in A, and in B."""
    public: Annotated[int, AtLeast(0)] = 500_000
    """Pictures X with known labels; 0: all others."""
    largest: Annotated[int, AtLeast(0)] = 500
    """Room left for sets of so many pictures of each class, so that X is the same whatever their size."""
    attacked: Annotated[int, AtLeast(0)] = 0
    """Pictures of A and of B that are cropped, at most; 0: all with boxes."""
    validation: Annotated[int, AtLeast(0)] = 0
    """Pictures for the linear probe; 0: those that come with the data, else what is left."""
    crop: CropName = "periphery"
    """What is shown of a picture: its largest rectangle without an object, the largest of the strips between boxes,
    or its lower left corner."""
    corner_share: Annotated[float, Share(zero=False)] = CORNER_SHARE
    """Share of the width and of the height that a corner crop shows, in (0, 1]."""
    smallest: Annotated[int, AtLeast(1)] = 100
    """Rectangles whose shorter side has fewer pixels are left out; a corner never is."""
    criterion: CriterionName = "vicreg"
    """The loss that the models are trained by."""
    invariance: Annotated[float, AtLeast(0)] = 25.0
    """Weight of the invariance term (vicreg)."""
    variance: Annotated[float, AtLeast(0)] = 25.0
    """Weight of the variance term (vicreg)."""
    covariance: Annotated[float, AtLeast(0)] = 1.0
    """Weight of the covariance term (vicreg)."""
    temperature: float = 0.15
    """Temperature (simclr)."""
    redundancy: float = 0.0051
    """Weight of the redundancy term (barlow)."""
    momentum: float = 0.996
    """Momentum of the teacher (byol, dino)."""
    backbone: Backbone = "resnet101"
    """The network whose first layer of embeddings is layer 0."""
    projector: tuple[int, ...] = (8192, 8192, 8192)
    """Widths of the projector's layers."""
    augmentation: Augmentation = Augmentation()
    """How views of a picture are drawn."""
    epochs: Count = 1000
    """Epochs of training."""
    recorded: tuple[int, ...] = ()
    """Epochs after which labels are inferred; always after the last, too."""
    link: Annotated[int, AtLeast(0)] = 50
    """Ours: epochs per link of the chain that a training is, from whose ends it goes on after an interruption; 0:
    one job."""
    batch: Annotated[int, AtLeast(2)] = 1024
    """Pictures a step."""
    accumulate: Count = 1
    """Ours: parts in which a step is computed, one after another, in the memory of one."""
    optimiser: OptimiserName = "lars"
    """The optimiser."""
    base_learning_rate: Rate = 0.2
    """The learning rate is this x batch / 256 after the warm-up."""
    warmup: Annotated[int, AtLeast(0), UpTo("epochs", below=True)] = 10
    """Epochs over which the learning rate rises."""
    weight_decay: Annotated[float, AtLeast(0)] = 1e-6
    """Weight decay."""
    precision: Precision = "float32"
    """Number format of the computation."""
    fine_tuning: Annotated[int, AtLeast(0)] = 0
    """Epochs of further training on labels, after each of which the models are attacked, too; 0: none."""
    layers: tuple[int, ...] = ()
    """Layers that are asked, from the backbone, 0, to the projector's output; the first decides; empty: the last
    alone."""
    k: tuple[int, ...] = (100,)
    """Numbers of neighbours that vote; the first decides."""
    confident: Annotated[int, Between(1, 100, "a percentage")] = 20
    """Percent of pictures, the most confident ones, of which the score is."""
    diffusion: Diffusion = Diffusion()
    """The diffusion model that draws reconstructions, and its training."""
    drawing: Drawing = Drawing()
    """Which pictures are reconstructed, and how."""
    shown: Annotated[int, AtLeast(0)] = 10
    """Ours: pictures of each kind in the report."""
    negligible: Annotated[float, Share(zero=False, one=False)] = field(default=0.02, metadata={ANSWER_ONLY: True})
    """Ours: score below which the answer is not seen."""
    partings: Annotated[int, AtLeast(199)] = 1999  # fewer than 199 could not tell enough
    """Ours: redrawn partings of the pictures, for p."""
    resamples: Annotated[int, AtLeast(1)] = 1000
    """Ours: bootstraps over pictures, for intervals."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if "scores" not in self.measures:
            raise ValueError(f"measures is {self.measures}; scores must be among them")
        if self.given.there and self.trained == "other":
            raise ValueError("trained is other; that is for models which are all trained here, and one is given")
        if self.fine_tuning and self.criterion == "supervised":
            raise ValueError(f"fine_tuning is {self.fine_tuning}; it must be 0, since a supervised model knows labels")
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

    def extras(self) -> tuple[Extra, ...]:
        return backbone_extras(self.backbone)

    @property
    def partition(self) -> Partition:
        return Partition(
            per_class=self.per_class,
            public=self.public,
            attacked=self.attacked,
            validation=self.validation,
            largest=self.largest,
            seed=seeds.derive(self.seed, "parts"),
        )

    @property
    def last_epoch(self) -> int:
        """The epochs that the models are trained for, fine-tuning among them."""
        return self.epochs + self.fine_tuning

    @property
    def is_null(self) -> bool:
        """Whether models are asked about pictures that neither was trained on."""
        return self.trained == "other"

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


@dataclass(frozen=True)
class About:
    """What the tables do not say of the run.

    The score that decides is that of the `confident` percent most confident pictures, at `layer`, of `k` neighbours,
    after `epoch`. `cell` is what of the paper the run repeats; empty for nothing. `given` says whether a third-party
    encoder is audited. `copies` are the exact copies among the pictures.
    """

    confident: int
    layer: int
    k: int
    epoch: int
    cell: str = ""
    given: bool = False
    copies: CopyCount = CopyCount()
