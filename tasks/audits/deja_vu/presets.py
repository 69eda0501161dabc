"""The paper's tables and figures as configurations, our own settings, and the published numbers.

The numbers are from Meehan et al. 2023, table in Figure 9 (d): the deja vu score at 20 %, and the accuracy of linear
probes on ImageNet's validation images on the output of projector and backbone, as shares. The models are ResNet-101s
trained on 300 images per class for 1000 epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tasks.audits.deja_vu.config import Corner, DejaVu, Periphery, Retrieval
from tasks.audits.deja_vu.encoder_config import Drawing, Reconstruction, Trained
from tasks.contract.ranges import with_defaults
from tasks.datasets.dataset import Dataset
from tasks.diffusion.diffusion_config import DiffusionSettings, UNet
from tasks.diffusion.pixel_classifier import PixelClassifier
from tasks.self_supervised.encoder_training import EncoderTraining
from tasks.self_supervised.pretraining_config import (
    BYOL,
    DINO,
    TRANSFORMERS,
    Augmentation,
    BarlowTwins,
    Criterion,
    SimCLR,
    Supervised,
    VICReg,
)

CHECKPOINTS = (50, 100, 250, 500, 750, 1000)
SIZES = (100, 200, 300, 400, 500)  # images per class
INVARIANCES = (10.0, 25.0, 50.0, 65.0, 80.0, 100.0)
TEMPERATURES = (0.05, 0.075, 0.10, 0.125, 0.15, 0.175, 0.25, 0.30, 0.50, 0.99)
K = (100, 10, 25, 50, 75, 150, 200)  # the decisive value, which the paper uses, comes first
RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101")
CRITERIA: tuple[Criterion, ...] = (VICReg(), BarlowTwins(), DINO(), BYOL(), SimCLR(), Supervised())

PUBLISHED = EncoderTraining()


def _train_by(criterion: Criterion) -> EncoderTraining:
    """Return the published training with this criterion."""
    if isinstance(criterion, SimCLR):
        return replace(PUBLISHED, criterion=criterion, projector=(2048, 256), base_learning_rate=0.3)
    return replace(PUBLISHED, criterion=criterion)


def criterion_cell(criterion: Criterion) -> DejaVu:
    """Return the published configuration with this criterion."""
    return DejaVu(training=_train_by(criterion))


PAPER = criterion_cell(VICReg())
SIMCLR = criterion_cell(SimCLR())


def _vary_sizes(config: DejaVu) -> tuple[DejaVu, ...]:
    return tuple(replace(config, per_class=size) for size in SIZES)


def _vary_epochs_and_sizes(config: DejaVu) -> tuple[DejaVu, ...]:
    """Return all checkpoints at the configured size, then the last epoch at each other size."""
    return checkpoints(config), *(variant for variant in _vary_sizes(config) if variant.per_class != config.per_class)


def checkpoints(config: DejaVu) -> DejaVu:
    return replace(config, encoders=Trained(checkpoints=CHECKPOINTS))


LOSS = (
    *(replace(criterion_cell(VICReg(invariance)), per_class=100) for invariance in INVARIANCES),
    *(replace(criterion_cell(SimCLR(temperature)), per_class=100) for temperature in TEMPERATURES),
)
BACKBONE = tuple(
    cell
    for config in (replace(PAPER, layers=(0, 3)), replace(SIMCLR, layers=(0, 2)))
    for cell in _vary_epochs_and_sizes(config)
)
CORNER = tuple(
    cell
    for criterion in (VICReg(), SimCLR(), Supervised())
    for cell in _vary_epochs_and_sizes(replace(criterion_cell(criterion), crop=Corner(0.4)))
)

# Our settings for the embedded scenes. Their objects are recognised by colour, so colours are not augmented.
SCENES = Augmentation(resolution=24, flip=0.0, jitter=0.0, grey=0.0, blur=0.0, solarise=0.0)
SCENE_TRAINING = EncoderTraining(
    backbone="small-resnet#16", projector=(256, 256, 256), augmentation=SCENES, epochs=750, link=250, batch=100,
    optimiser="adamw", base_learning_rate=0.005,
)  # fmt: skip
SCENE_PAIR = Trained(checkpoints=(50, 100, 250, 500, 750))
QUICKSTART = DejaVu(
    data=Dataset("digits-on-photos"), encoders=SCENE_PAIR, training=SCENE_TRAINING, per_class=20, public=800,
    reserved_per_class=0, crop=Periphery(12), k=(30,),
)  # fmt: skip
OVERTRAINED = replace(
    QUICKSTART,
    encoders=Trained(checkpoints=(100, 250, 500, 1000, 2000)),
    training=replace(SCENE_TRAINING, epochs=2000, link=500),
)
# Takes 25 minutes on one core. The true object appears in 30 % of the target's reconstructions and in 11 % of the
# reference's: score 0.19 [0.14, 0.25] over 400 images. The classifier names all of the original images correctly.
RECONSTRUCTION = Reconstruction(
    DiffusionSettings(
        24,
        UNet((16, 32, 32), 1, (6,), 2),
        epochs=100,
        batch=32,
        learning_rate=2e-3,
        ema_decay=0.995,
        validation_images=64,
    ),
    Drawing(images=0, steps=25, link=50, classifier=PixelClassifier(augmentation=False, epochs=12, batch=32)),
)
DRAWINGS = replace(QUICKSTART, encoders=replace(SCENE_PAIR, probe=False, reconstruction=RECONSTRUCTION), retrieval=None)
SMOKE = replace(
    QUICKSTART,
    encoders=Trained(checkpoints=(1, 2)),
    training=replace(SCENE_TRAINING, epochs=2, link=1, warmup=1),
    permutations=199,
    resamples=100,
)

PRESETS: Mapping[str, DejaVu | tuple[DejaVu, ...]] = {
    "quickstart": QUICKSTART,
    "null": replace(QUICKSTART, encoders=replace(SCENE_PAIR, training_sets="other")),
    "overtrained": OVERTRAINED,
    "correlated": replace(QUICKSTART, correlation=1.0),
    "drawings": DRAWINGS,
    "smoke": SMOKE,
    "figure3": (PAPER, criterion_cell(Supervised())),
    "epochs": tuple(checkpoints(criterion_cell(criterion)) for criterion in CRITERIA),
    "sizes": (*_vary_sizes(PAPER), *_vary_sizes(criterion_cell(Supervised()))),
    "loss": LOSS,
    "layers": replace(PAPER, layers=(3, 2, 1, 0)),
    "backbone": BACKBONE,
    "architectures": tuple(
        checkpoints(replace(PAPER, training=replace(PUBLISHED, backbone=name))) for name in (*RESNETS, *TRANSFORMERS)
    ),
    "k": replace(PAPER, k=K),
    "finetune": replace(PAPER, training=replace(PUBLISHED, fine_tuning=20)),
    "retrieval": (PAPER, replace(SIMCLR, layers=(2, 0))),  # images chosen by the projector, neighbours from both layers
    "corner": CORNER,
    "reconstruction": replace(PAPER, encoders=Trained(reconstruction=Reconstruction())),
}

# What each preset repeats: a part of the paper, or one of our own settings.
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: digits on photographs, 20 of each class in A, a small ResNet",
    "null": "ours: quickstart with models that saw neither A nor B",
    "overtrained": "ours: quickstart for 2000 epochs",
    "correlated": "ours: quickstart with digits that their backgrounds reveal",
    "drawings": "ours: quickstart with reconstructions",
    "smoke": "ours: quickstart for 2 epochs",
    "figure3": "Figure 3: VICReg and supervised, at 1 to 100 %",
    "epochs": "Figures 4a, 5a, 13a, 16, 9d: six criteria, six checkpoints",
    "sizes": "Figures 4b, 5b, 13b: VICReg and supervised, 100 to 500 images per class",
    "loss": "Figures 8a, 14: six invariances, ten temperatures",
    "layers": "Figures 8b, 18: layers",
    "backbone": "Figure 19: VICReg and SimCLR, both layers, by epochs and sizes",
    "architectures": "Figures 9c, 17: four ResNets, four vision transformers",
    "k": "Figure 15: 10 to 200 neighbours",
    "finetune": "Figure 10: fine-tuning on labels",
    "retrieval": "Figures 6, 7, 11, 12, 20: retrieved images, also by SimCLR's backbone",
    "corner": "Figure 21: the lower left corner; VICReg, SimCLR, supervised, by epochs and sizes",
    "reconstruction": "Figure 1: images reconstructed from embeddings (RCDM)",
}


class Printed(NamedTuple):
    """One row of the paper's table."""

    score: float
    projector: float
    backbone: float


PRINTED: Mapping[str, Printed] = {
    "supervised": Printed(0.089, 0.553, 0.611),
    "byol": Printed(0.080, 0.543, 0.594),
    "simclr": Printed(0.100, 0.442, 0.541),
    "dino": Printed(0.145, 0.263, 0.557),
    "barlow": Printed(0.305, 0.337, 0.544),
    "vicreg": Printed(0.332, 0.403, 0.552),
}


OPEN = ("layers", "retrieval", "negligible", "permutations", "resamples", "seed")


def printed_numbers(cell: str) -> Printed:
    """Return the published numbers for this criterion."""
    return PRINTED[cell]


def repeats(config: DejaVu) -> str:
    """Return the criterion of the table row whose settings the run repeats. Empty for other settings."""
    if config.asked_layers[0] != config.training.top:
        return ""
    for criterion in CRITERIA:
        if comparable_config(config) == comparable_config(criterion_cell(criterion)):
            return criterion.tag
    return ""


def comparable_config(config: DejaVu) -> DejaVu:
    """Reset settings that the paper leaves open, or that do not affect its table, to their defaults."""
    encoders = config.encoders
    if isinstance(encoders, Trained):
        encoders = Trained(encoders.training_sets)
    return with_defaults(
        config,
        OPEN,
        data=Dataset(config.data.name),
        k=config.k[:1],
        encoders=encoders,
        training=with_defaults(config.training, ("link", "accumulate", "precision")),
    )


SIDE = 32  # image side of the scenes, in pixels


def tiny(config: DejaVu) -> DejaVu:
    """Reduce the configuration to a run of seconds that attacks the same number of epochs and layers."""
    training = _tiny_training(config.training)
    encoders = config.encoders
    return replace(
        config,
        data=Dataset("digits-on-photos"),
        encoders=encoders.tiny(training.epochs) if isinstance(encoders, Trained) else encoders,
        training=training,
        per_class=4,
        public=100,
        reserved_per_class=0,
        attack_images=0,
        validation=40,
        crop=config.crop if isinstance(config.crop, Corner) else replace(config.crop, smallest=8),
        k=tuple(range(5, 5 + len(config.k))),
        retrieval=None if config.retrieval is None else Retrieval(min(config.retrieval.example_images, 2)),
        permutations=199,
        resamples=100,
    )


def _tiny_training(training: EncoderTraining) -> EncoderTraining:
    """Return a training of at most two epochs with a small network."""
    return replace(
        training,
        backbone="vit-ti" if training.backbone in TRANSFORMERS else "small-resnet#8",
        projector=(16,) * len(training.projector),
        augmentation=replace(training.augmentation, resolution=SIDE, side=0),
        epochs=min(training.epochs, 2),
        link=1 if training.link else 0,
        batch=20,
        accumulate=1,
        warmup=0,
        fine_tuning=min(training.fine_tuning, 2),
    )
