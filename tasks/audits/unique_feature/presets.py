"""Presets: the paper's tables and figures as configs, one per table cell, with the numbers printed there.

Further presets are ours, and so are the situations of `engram start`. The paper is Hartley & Tsaftaris 2022,
"Unintended memorisation of unique features in neural networks".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.questions import (
    CanaryPairs,
    EpochScores,
    Pairs,
    ProbePictures,
    SelfInfluenceChoice,
    UnitResponses,
)
from tasks.audits.unique_feature.training_config import FeatureTraining
from tasks.contract.situation import NETWORK, TABLE, Asked, Situation
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph
from tasks.models.catalog import Network
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining

LEVEL = 0.05  # level at which the paper calls a test significant

Top = tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class PublishedNumbers:
    """The printed numbers of one cell: a data set with a network and its regularisers."""

    m_w: Top = ()  # Table 1: M_w, Average(P(y|x_u)), Average(P(y|x_r)), by rank of M_w
    m: tuple[float, ...] = ()  # Table 2: the largest M
    m_where_positive: float | None = None  # Tables 2 and 3: mean M over the canaries with M > 0
    correlation: float | None = None  # section 3.3: between self-influence and M
    accuracy: float | None = None  # section 3.1.2: on the validation split
    # Section 3.3: for the images with the highest and the lowest self-influence, (without, with) the feature. Their
    # size fits sums of squared slopes without the learning rate.
    highest: tuple[float, float] | None = None
    lowest: tuple[float, float] | None = None


PLAIN = "no regulariser"
DROPOUT = "dropout"
AUGMENTATION = "augmentation"
BOTH = "dropout and augmentation"
BATCH_NORM = "batch norm"
REGULARISERS = (DROPOUT, AUGMENTATION, BOTH, BATCH_NORM)

PUBLISHED: Mapping[tuple[str, str, str, str], PublishedNumbers] = {
    ("table 1", "mnist", "mlp1", PLAIN): PublishedNumbers(
        m_w=((0.11, 0.50, 0.44), (0.11, 0.52, 0.46), (0.11, 0.48, 0.43), (0.10, 0.42, 0.38), (0.10, 0.41, 0.37))
    ),
    ("table 1", "cifar10", "cnn2", PLAIN): PublishedNumbers(
        m_w=((0.09, 0.72, 0.66), (0.09, 0.58, 0.53), (0.09, 0.64, 0.59), (0.09, 0.61, 0.56), (0.08, 0.53, 0.49)),
        accuracy=0.72,
    ),
    ("table 2", "mnist", "mlp1", PLAIN): PublishedNumbers(
        m=(0.0038, 0.0021, 0.0017),
        m_where_positive=0.0013,
        correlation=0.43,
        highest=(6.6e4, 7.5e4),
        lowest=(1.0e-13, 7.5e4),
    ),
    ("table 2", "fashion-mnist", "mlp1", PLAIN): PublishedNumbers(m=(0.03, 0.021, 0.019), m_where_positive=0.0093),
    ("table 2", "mnist", "cnn1", PLAIN): PublishedNumbers(m=(0.073, 0.035, 0.021), m_where_positive=0.012),
    ("table 2", "fashion-mnist", "cnn1", PLAIN): PublishedNumbers(m=(0.085, 0.068, 0.059), m_where_positive=0.028),
    ("table 2", "cifar10", "cnn2", PLAIN): PublishedNumbers(
        m=(0.058, 0.023, 0.018), m_where_positive=0.018, accuracy=0.72
    ),
    # The mean of just these three, because the paper scored no more.
    ("table 2", "cifar10", "densenet100", PLAIN): PublishedNumbers(
        m=(0.72, 0.25, 0.18), m_where_positive=0.38, accuracy=0.92
    ),
    ("table 3", "mnist", "mlp1", DROPOUT): PublishedNumbers(m_where_positive=0.02),
    ("table 3", "mnist", "mlp1", AUGMENTATION): PublishedNumbers(m_where_positive=0.0033),
    ("table 3", "mnist", "mlp1", BOTH): PublishedNumbers(m_where_positive=0.0013),
    ("table 3", "mnist", "mlp1", BATCH_NORM): PublishedNumbers(m_where_positive=0.039),
    ("table 3", "fashion-mnist", "mlp1", DROPOUT): PublishedNumbers(m_where_positive=0.025),
    ("table 3", "fashion-mnist", "mlp1", AUGMENTATION): PublishedNumbers(m_where_positive=0.0065),
    ("table 3", "fashion-mnist", "mlp1", BOTH): PublishedNumbers(m_where_positive=0.029),
    ("table 3", "fashion-mnist", "mlp1", BATCH_NORM): PublishedNumbers(m_where_positive=0.00097),
    ("table 3", "cifar10", "cnn2", DROPOUT): PublishedNumbers(m_where_positive=0.38),
    ("table 3", "cifar10", "cnn2", AUGMENTATION): PublishedNumbers(m_where_positive=0.13),
    ("table 3", "cifar10", "cnn2", BOTH): PublishedNumbers(m_where_positive=0.44),
    ("table 3", "cifar10", "cnn2", BATCH_NORM): PublishedNumbers(m_where_positive=1.7),
}


@dataclass(frozen=True)
class PublishedCell:
    """Configuration of the summary: the printed cell that the run repeats. Empty if it repeats none."""

    cell: str = ""
    left_out: int = 0
    """Number of probe images that are left out because the networks are trained on them."""
    copies: CopyCount = CopyCount()
    """Exact copies among the training images from which canaries are drawn."""
    chance: float | None = None
    """Accuracy of the best constant output on the validation images. None if nothing is trained."""

    @property
    def numbers(self) -> PublishedNumbers:
        return published_numbers(self.cell)


def published_numbers(cell: str) -> PublishedNumbers:
    """Return the numbers of a cell by its name, such as `table 2, mnist, mlp1, no regulariser`.

    An unknown cell has no numbers.
    """
    return next((printed for names, printed in PUBLISHED.items() if _cell_name(*names) == cell), PublishedNumbers())


def _cell_name(*parts: str) -> str:
    return ", ".join(parts)


# Published training of each network (A.2, A.3). That of DenseNet is Atienza's recipe, which the paper adopted.
TRAININGS: Mapping[str, FeatureTraining] = {
    "mlp1": FeatureTraining(),
    "cnn1": FeatureTraining(network=Network("cnn1")),
    "cnn2": FeatureTraining(network=Network("cnn2"), batch=512),
    "densenet100": FeatureTraining(
        network=Network("densenet100"),
        optimiser="rmsprop",
        learning_rate=1e-3,
        batch=32,
        epochs=200,
        patience=0,
        schedule=((80, 0.1), (120, 0.01), (160, 0.001), (180, 0.0005)),
    ),
}


def cell(data: str, network: str, regulariser: str = PLAIN) -> Pairs:
    """Return the pairs of a published cell."""
    training = replace(
        TRAININGS[network],
        dropout=regulariser in (DROPOUT, BOTH),
        augmentation=regulariser in (AUGMENTATION, BOTH),
        batch_norm=regulariser == BATCH_NORM,
    )
    return Pairs(data=Dataset(data), training=training)


def asked_of(question: CanaryPairs | ProbePictures) -> UniqueFeature:
    """Return the question with the published probe set.

    The probe set is greyscale CIFAR-10 for MNIST and Fashion-MNIST, and MNIST for CIFAR-10.
    """
    probe = "mnist" if question.data.name == "cifar10" else "cifar10"
    return UniqueFeature(question, probe=Dataset(probe))  # type: ignore[arg-type]  # a concrete question


def _choose_by_influence(pairs: Pairs, with_feature: bool = False) -> Pairs:
    """Choose the 15 training images with the highest and the 15 with the lowest self-influence as canaries."""
    return replace(pairs, choice=SelfInfluenceChoice(with_feature), canaries=30)


TABLE_1 = (cell("mnist", "mlp1"), cell("cifar10", "cnn2"))
TABLE_2 = (
    ("mnist", "mlp1"),
    ("fashion-mnist", "mlp1"),
    ("mnist", "cnn1"),
    ("fashion-mnist", "cnn1"),
    ("cifar10", "cnn2"),
    ("cifar10", "densenet100"),
)
FIGURE_2 = (("mnist", "mlp1"), ("fashion-mnist", "mlp1"), ("cifar10", "cnn2"))
TABLE_3 = tuple(
    asked_of(replace(_choose_by_influence(cell(data, network, regulariser)), beside_plain=True))
    for data, network in FIGURE_2
    for regulariser in REGULARISERS
)
ESTIMATORS = tuple(
    asked_of(replace(cell("mnist", "mlp1"), measures=("scores", "family", "ranks"), evaluations=2, drawn=drawn))
    for drawn in (False, True)
)
# At the letter's own position, another glyph would share about half of its cells with the letter and leave a memory in
# them.
ELSEWHERE = Glyph(kind="random", seed=1, top=22, left=22)
# Epsilon bounds the rank of a drawn feature by one model. Training never stops early here, because private training
# cannot.
LADDER_TRAINING = FeatureTraining(epochs=60, patience=0, learning_rate=3e-3, batch=300)
LADDER = Pairs(
    data=Dataset("digits"),
    examples=300,
    canaries=12,
    drawn=True,
    training=LADDER_TRAINING,
    measures=("scores", "ranks"),
    probes=100,
)
PRIVACIES: tuple[LinkedTraining | DifferentialPrivacy, ...] = (
    LinkedTraining(),
    *(DifferentialPrivacy(epsilon) for epsilon in (64.0, 16.0, 4.0, 1.0)),
)
QUICKSTART = Pairs(data=Dataset("digits"), canaries=12, probes=100)


def _of_digits(pairs: Pairs) -> UniqueFeature:
    """Return pairs of networks that are trained on digits and evaluated on photos."""
    return UniqueFeature(pairs, probe=Dataset("photos"))


PRESETS: Mapping[str, UniqueFeature | tuple[UniqueFeature, ...]] = {
    "quickstart": _of_digits(QUICKSTART),
    "null": _of_digits(replace(QUICKSTART, burnt=ELSEWHERE, measures=("scores", "ranks"))),
    "smoke": _of_digits(replace(QUICKSTART, canaries=3, examples=300, training=FeatureTraining(epochs=3))),
    "table1": tuple(map(asked_of, TABLE_1)),
    "table1-mnist": asked_of(TABLE_1[0]),
    "table2": tuple(asked_of(_choose_by_influence(cell(*names))) for names in TABLE_2),
    "table2-mnist": asked_of(_choose_by_influence(TABLE_1[0])),
    "table3": TABLE_3,
    "figure2": tuple(asked_of(ProbePictures(data=Dataset(data))) for data, _ in FIGURE_2),
    "figure3a": asked_of(replace(TABLE_1[0], canaries=30, seeds=5)),
    "figure3b": asked_of(UnitResponses(one_seed=True)),
    "figure3c": asked_of(EpochScores(canaries=1)),
    "figure4": tuple(asked_of(replace(pairs, evaluations=3)) for pairs in TABLE_1),
    "figure5": asked_of(replace(TABLE_1[0], seeds=5)),
    "figure6": asked_of(replace(TABLE_1[1], seeds=5)),
    "section33": tuple(asked_of(_choose_by_influence(cell(*names), with_feature=True)) for names in FIGURE_2),
    "estimators": ESTIMATORS,
    "ladder": tuple(
        _of_digits(replace(LADDER, training=replace(LADDER_TRAINING, privacy=privacy))) for privacy in PRIVACIES
    ),
}

# The part of the paper that each preset repeats, or "ours".
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: 12 canaries in digits, MLP-1",
    "null": "ours: control experiment; quickstart with canaries that carry another feature",
    "smoke": "ours: three canaries in 300 digits",
    "table1": "Table 1: white-box M_w of 100 random canaries, MNIST and CIFAR-10",
    "table1-mnist": "the MNIST row of Table 1",
    "table2": "Table 2: M of the 15 images with the highest and the 15 with the lowest self-influence, six cells",
    "table2-mnist": "the MNIST MLP-1 row of Table 2",
    "table3": "Table 3: dropout, augmentation, both, and batch norm; twelve cells",
    "figure2": "Figure 2: images of probe triples",
    "figure3a": "Figure 3a: the range of M and M_w over five training seeds",
    "figure3b": "Figure 3b: units that respond to the feature alone",
    "figure3c": "Figure 3c: M after every epoch of one training",
    "figure4": "Figure 4: three redrawn evaluations of Table 1's models",
    "figure5": "Figure 5: five training seeds, MNIST",
    "figure6": "Figure 6: five training seeds, CIFAR-10",
    "section33": "Section 3.3: self-influence with and without the feature, and M",
    "estimators": "ours: every score's detection rate against its false positives",
    "ladder": "ours: canaries with drawn features in digits, without privacy and at four epsilons",
}

# The cells whose numbers the paper prints, keyed by cell name.
PRINTED: Mapping[str, UniqueFeature] = {
    _cell_name(table, data, network, regulariser): asked_of(
        cell(data, network, regulariser)
        if table == "table 1"
        else _choose_by_influence(cell(data, network, regulariser))
    )
    for table, data, network, regulariser in PUBLISHED
}


def _unlinked(training: FeatureTraining) -> FeatureTraining:
    """Return the same training as one job."""
    if training.link:
        return replace(training, privacy=LinkedTraining())
    return training


def printed_cell(config: UniqueFeature) -> str:
    """Return the printed cell that a config repeats, for any seed and any additional measures. Empty if there is none.

    It makes no difference how the training is divided into links.
    """
    pairs = config.scored_pairs
    if pairs is None or not isinstance(pairs.training, FeatureTraining):
        return ""
    choice = pairs.choice
    if isinstance(choice, SelfInfluenceChoice):
        choice = replace(choice, with_feature=False)
    published_config = replace(
        config,
        question=replace(
            pairs,
            data=Dataset(pairs.data.name),
            choice=choice,
            training=_unlinked(pairs.training),
            measures=("scores",),
            evaluations=1,
            beside_plain=False,
        ),
        probe=Dataset(config.probe.name),
        seed=0,
    )
    return next((name for name, printed in PRINTED.items() if printed == published_config), "")


FEATURE = Asked("feature", "Feature in that image? A letter, words:... or picture:FILE", "words:JANE DOE", "A")
PROBE = Asked("probe", "Images from another source, on which the models are evaluated?", "folder:elsewhere", "photos")
SHAPE = Asked("question.shape", "Height, width and channels of the model's input images?", "64,64,1")
DATA = Asked("question.data", "Training images?", "folder:scans#64x64#grey", "digits")
MODEL = Asked("question.source.models", "Model file?", "model.pt")
OUTPUTS = replace(TABLE, field="question.source.outputs")
SECRET = Asked("question.secret", "Secret with which the probes were written (empty: none)?", "", optional=True)

SITUATIONS = (
    Situation(
        "data",
        "image",
        (DATA, replace(NETWORK, field="question.training.network"), PROBE, FEATURE),
        preset="quickstart",
    ),
    Situation(
        "model",
        "image",
        (SHAPE, MODEL, PROBE, FEATURE),
        sets={"question": "given", "question.source": "files", "question.probes": 200},
    ),
    Situation(
        "outputs",
        "image",
        (SHAPE, PROBE, FEATURE, OUTPUTS, SECRET),
        sets={"question": "given", "question.probes": 200},
        table=OUTPUTS.field,
        secret=SECRET.field,
    ),
)
