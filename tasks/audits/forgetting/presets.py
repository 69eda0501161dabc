"""The paper's tables and figure with their published numbers, our presets, and the situations of `engram ask`.

Liu & Tsaftaris 2020, "Have you forgotten?", tables 1 and 2. The KS of MNIST to itself is .049 rather than 0, so the
paper retrained the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from tasks.audits.forgetting.audited import PUBLISHED, SHARES, Given, Trained, count_targets
from tasks.audits.forgetting.classifier import Classifier
from tasks.audits.forgetting.config import Examples, Forgetting, Question, Scores, least_permutations
from tasks.audits.forgetting.query_set import ControlSet, HeldBack, NamedImages, QuerySet
from tasks.audits.forgetting.target import Target
from tasks.contract.situation import NETWORK, TABLE, Asked, Situation
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tasks.external.bound_draw import OTHER_PARTY
from tasks.models.catalog import Network
from tasks.programs.config import Program
from tasks.training.unlearning_config import UNLEARNING


def audit_targets(config: Forgetting, *targets: Target, outside: Part | None = None) -> Forgetting:
    """Replace the targets by these models, trained with the same recipe."""
    if isinstance(config.question, Scores):
        question = config.question
    else:
        question = Scores()
    return replace(config, question=replace(question, audited=Trained(targets, outside)))


# The published tables have no control set: these presets repeat the paper and judge no model.
MNIST = QuerySet(Dataset("mnist"), control=None)
TABLE1 = Forgetting(query=MNIST)
# ResNet-18 on random 128-pixel squares, since slices are larger than the heart.
TABLE2 = Forgetting(
    query=QuerySet(Dataset("acdc-3t"), control=None),
    calibration=Part(Dataset("acdc-1.5t")),
    question=Scores(
        audited=Trained(PUBLISHED, None),
        training=Classifier(Network("resnet18"), crop=128, epochs=30, schedule=((24, 0.1),)),
    ),
)
SMALL = (0.02, 0.05)  # query set shares below the paper's
BELOW = tuple(Target(query=share, calibration=1.0) for share in SMALL)
# MNIST's 60,000 training images are split: half for the query set, half for the second source.
WITHOUT_SVHN = audit_targets(
    Forgetting(
        query=QuerySet(Dataset("mnist"), 0, 30_000),
        calibration=Part(Dataset("mnist-on-photos"), 30_000, 30_000),
    ),
    *Trained().targets,
    *BELOW,
    outside=Part(Dataset("cifar10#28x28#grey"), 0, 30_000),
)
NULL = Target(calibration=1.0)
CURVE = (NULL, *(Target(query=share, calibration=1.0) for share in (0.001, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)))
SIZES = (1_000, 10_000, 60_000)  # numbers of images in the query set
SMALL_NETWORK = Classifier(Network("mlp1"), epochs=60, schedule=((48, 0.1),))
# Digits on photographs are difficult enough for a small network to show memorisation. On plain digits, models trained
# on all of D_Q and on none of it are almost equally certain, so detection depends on the draw.
QUICKSTART = Forgetting(
    query=QuerySet(Dataset("digits-on-photos"), 0, 1000),
    calibration=Part(Dataset("digits-on-photos"), 1000, 400),
    question=Scores(
        audited=Trained((NULL, *(Target(query=share, calibration=1.0) for share in SHARES)), None),
        training=SMALL_NETWORK,
    ),
)
PLAIN = replace(
    QUICKSTART,
    query=QuerySet(Dataset("digits"), 0, 700),
    calibration=Part(Dataset("digits-on-photos"), 700, 700),
)

# The model trained on all of D_Q, and the same model after each unlearning method.
HELD = Target(query=1.0, calibration=1.0)
UNLEARNT = (HELD, *(replace(HELD, unlearning=method()) for method in UNLEARNING.values()))

PRESETS: Mapping[str, Forgetting | tuple[Forgetting, ...]] = {
    "quickstart": QUICKSTART,
    "null": audit_targets(QUICKSTART, NULL),
    "unlearning": audit_targets(PLAIN, *UNLEARNT),
    "smoke": Forgetting(
        query=QuerySet(Dataset("digits"), 0, 200, ControlSet(permutations=999)),
        calibration=Part(Dataset("digits-on-photos"), 200, 200),
        question=Scores(
            audited=Trained((NULL, HELD), None),
            training=replace(SMALL_NETWORK, epochs=10),
            replicates=2,
        ),
    ),
    "plain-digits": PLAIN,
    "table1": TABLE1,
    "table1-without-svhn": WITHOUT_SVHN,
    "table2": TABLE2,
    "figure2": replace(TABLE2, question=Examples()),
    "sensitivity": tuple(audit_targets(replace(TABLE1, query=replace(MNIST, examples=size)), *CURVE) for size in SIZES),
}

# What each preset repeats: a part of the paper, or one of our own settings.
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: digits on photographs",
    "null": "ours: quickstart with a target trained like the calibration models",
    "unlearning": "ours: each unlearning method on the model of all of D_Q, digits",
    "smoke": "ours: 200 digits",
    "plain-digits": "ours: plain digits and digits on photographs, as in the provider example",
    "table1": "Table 1: D_Q MNIST, D_C SVHN, out of domain CIFAR-10",
    "table1-without-svhn": "ours: Table 1 with digits on photographs for SVHN and half of D_Q held back",
    "table2": "Table 2: D_Q ACDC at 3 T, D_C at 1.5 T; ResNet-18",
    "figure2": "Figure 2: an image of each class in each set",
    "sensitivity": "ours: power over shares of D_Q from 0.1 %, for three sizes of D_Q",
}


DEEP = ("densenet100", "resnet18")
TINY_ROWS = 120  # rows per part


def tiny(config: Forgetting) -> Forgetting:
    """Reduce the audit to seconds on embedded data. Slow networks get as little data as possible."""
    if isinstance(config.question, Examples):
        if config.question.outside is None:
            outside = None
        else:
            outside = Part(Dataset("photos#8x8"), 0, 40)
        return _tiny_data(replace(config, question=Examples(outside)), "#8x8", 40)
    question = config.question
    training = question.training
    if isinstance(training, Program):
        audited = question.audited
        if isinstance(audited, Trained) and audited.outside is not None:
            audited = replace(audited, outside=_few_rows(audited.outside))
        question = replace(question, audited=audited, replicates=min(question.replicates, 2))
        return _tiny_rows(_tiny_control(replace(config, question=question)))
    deep = training.network.name in DEEP
    plain = training.network.name == "mlp1"
    size = "#8x8" if deep else "" if plain else "#16x16"
    count = TINY_ROWS if plain else 40
    audited = question.audited
    if isinstance(audited, Trained) and audited.outside is not None:
        audited = replace(audited, outside=Part(Dataset(f"photos{size}"), 0, count))
    training = replace(
        training,
        crop=(4 if deep else 12) if training.crop else 0,
        epochs=min(training.epochs, 1 if deep else 2),
        link=1 if training.link else 0,
    )
    question = replace(question, audited=audited, training=training, replicates=min(question.replicates, 2))
    return _tiny_data(replace(config, question=question), size, count)


def _tiny_data(config: Forgetting, size: str, count: int) -> Forgetting:
    """Use `count` embedded images of this size in each part."""
    control = _tiny_control(config).query.control
    return replace(
        config,
        query=QuerySet(Dataset(f"digits{size}"), examples=count, control=control),
        calibration=Part(Dataset(f"digits-on-photos{size}"), count, count),
    )


def _tiny_rows(config: Forgetting) -> Forgetting:
    """Use the first rows of each part. A program keeps its data."""
    query = replace(config.query, examples=_few_rows(config.query.pool).examples)
    return replace(config, query=query, calibration=_few_rows(config.calibration))


def _few_rows(part: Part) -> Part:
    return replace(part, examples=min(part.examples or TINY_ROWS, TINY_ROWS))


def _tiny_control(config: Forgetting) -> Forgetting:
    """Reduce the number of permutations, and hold control images back from the query set."""
    control = config.query.control
    if control is None:
        return config
    if config.audited is None:
        fewest_permutations = 1
    else:
        fewest_permutations = least_permutations(count_targets(config.audited))
    permutations = min(control.permutations, max(199, fewest_permutations))
    control = replace(control, images=HeldBack(), permutations=permutations)
    control = replace(control, nonce="", nonce_by=OTHER_PARTY, commitment="")
    return replace(config, query=replace(config.query, control=control))


class PublishedNumbers(NamedTuple):
    """One column of a published table: KS to the query model, and rho, to three decimals."""

    ks: float
    rho: float


KS = {
    "table 1": (0.049, 0.669, 0.652, 0.596, 0.056, 0.039, 0.029, 0.957),
    "table 2": (0.036, 0.885, 0.793, 0.772, 0.579, 0.529, 0.103),
}
RHO = {
    "table 1": (0.082, 1.122, 1.094, 1.000, 0.094, 0.065, 0.049, 1.606),
    "table 2": (0.047, 1.146, 1.027, 1.000, 0.750, 0.685, 0.133),
}
CELLS: Mapping[str, Forgetting] = {"table 1": TABLE1, "table 2": TABLE2}


def numbers_by_target(cell: str) -> Mapping[Target, PublishedNumbers]:
    """Return the columns of a table by the target's training. Empty for an empty table name."""
    if not cell:
        return {}
    targets = (*PUBLISHED, Target(outside=1.0))[: len(KS[cell])]
    result = {}
    for target, *printed in zip(targets, KS[cell], RHO[cell], strict=True):
        result[target] = PublishedNumbers(*printed)
    return result


def numbers_by_name(cell: str) -> Mapping[str, PublishedNumbers]:
    """Return the columns of a table by target name. Empty for an empty table name."""
    return {str(target): printed for target, printed in numbers_by_target(cell).items()}


class Parts(Protocol):
    """Parts of the data, from a configuration or loaded."""

    @property
    def query(self) -> QuerySet: ...

    @property
    def calibration(self) -> Part: ...

    @property
    def outside(self) -> Part | None: ...


def printed_cell(question: Question, data: Parts) -> str:
    """Return the table with this data and training, regardless of targets and replicates. Empty if there is none."""
    return next((name for name, cell in CELLS.items() if _matches_cell(cell, question, data)), "")


def _matches_cell(cell: Forgetting, question: Question, data: Parts) -> bool:
    """Return whether a run belongs to the cell. Out-of-domain data matter only for their own column."""
    outside, published = data.outside, cell.outside
    has_same_outside = outside is None or published is None or _unpinned_part(outside) == _unpinned_part(published)
    return has_same_outside and published_settings(question, data) == published_settings(cell.question, cell)


def published_settings(question: Question, data: Parts) -> tuple[object, ...]:
    """Return the settings that the paper states and its columns share. Empty if no target is trained here."""
    if not isinstance(question, Scores) or not isinstance(question.audited, Trained):
        return ()
    if not isinstance(question.training, Classifier):
        return ()
    return (
        replace(data.query, data=Dataset(data.query.data.name)),
        _unpinned_part(data.calibration),
        replace(question.training, link=0),
        question.calibration_share,
    )


def _unpinned_part(part: Part) -> Part:
    """Return the part with its data set by name, without its digest."""
    return replace(part, data=Dataset(part.data.name))


# Data other than the embedded digits are used in full.
WHOLE = {"query.examples": 0}
QUERY = Asked("query.data", "Which images are to be forgotten (D_Q)?", "folder:ours", "digits", sets=WHOLE)
CALIBRATION = Asked(
    "calibration.data",
    "Which other images of the same domain and shape are there (D_C)?",
    "folder:theirs",
    "digits-on-photos",
    sets={"calibration.first": 0, "calibration.examples": 0},
)
KEPT_BACK = "Images of the same source as D_Q that were never given away"
CONTROL = Asked(
    "query.control.images.data", f"{KEPT_BACK}?", "folder:kept", sets={"query.control.images": NamedImages.tag}
)
OPTIONAL_CONTROL = replace(CONTROL, question=f"{KEPT_BACK} (empty: half of D_Q is held back)?", optional=True)
OWN_NETWORK = replace(NETWORK, field="question.training.network")
MODEL_FILE = Asked("question.audited.models", "The model's file?", "model.pt")
RETURNED_TABLE = replace(TABLE, field="question.audited.tables.outputs")
SECRET = Asked("query.control.secret", "The secret used by engram probes (empty: none)?", "", optional=True)
GIVEN = {"question.audited": Given.tag}

SITUATIONS = (
    Situation("data", "set", (QUERY, OPTIONAL_CONTROL, CALIBRATION, OWN_NETWORK), preset="quickstart"),
    Situation("model", "set", (MODEL_FILE, QUERY, CONTROL, CALIBRATION, OWN_NETWORK), preset="quickstart", sets=GIVEN),
    Situation(
        "outputs",
        "set",
        (QUERY, OPTIONAL_CONTROL, CALIBRATION, OWN_NETWORK, RETURNED_TABLE, SECRET),
        preset="quickstart",
        sets=GIVEN,
        table=RETURNED_TABLE.field,
        secret=SECRET.field,
    ),
)
