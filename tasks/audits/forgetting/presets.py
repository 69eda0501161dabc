"""The paper's tables and figure as configs with the numbers that it prints, settings of our own, and the situations.

Liu & Tsaftaris 2020, "Have you forgotten?", tables 1 and 2. KS of MNIST to itself is .049 and not 0, so that the
target was trained anew there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tasks.audits.forgetting.config import PUBLISHED, SHARES, Forgetting, least_permutations
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.forgetting.target import Target
from tasks.contract.ranges import with_defaults
from tasks.contract.situation import NETWORK, TABLE, Asked, Situation
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tasks.models.catalog import Network
from tasks.training.unlearning_config import UNLEARNING

# The published tables have no control set: they repeat the paper, and judge nobody.
MNIST = QuerySet(Dataset("mnist"), held_back=0.0)
TABLE1 = Forgetting(query=MNIST)
# ResNet-18 on random squares of 128 pixels, as slices of a heart are larger than what is needed of them.
TABLE2 = Forgetting(
    query=QuerySet(Dataset("acdc-3t"), held_back=0.0),
    calibration=Part(Dataset("acdc-1.5t")),
    outside=None,
    targets=PUBLISHED,
    network=Network("resnet18"),
    crop=128,
    epochs=30,
    schedule=((24, 0.1),),
)
SMALL = (0.02, 0.05)  # shares of the query set below those of the paper
BELOW = tuple(Target(query=share, calibration=1.0) for share in SMALL)
# MNIST's 60,000 training images are the query set's, and what the second source is made of, half each.
WITHOUT_SVHN = replace(
    TABLE1,
    query=QuerySet(Dataset("mnist"), 0, 30_000),
    calibration=Part(Dataset("mnist-on-photos"), 30_000, 30_000),
    outside=Part(Dataset("cifar10#28x28#grey"), 0, 30_000),
    targets=(*TABLE1.targets, *BELOW),
)
NULL = (Target(calibration=1.0),)
CURVE = (*NULL, *(Target(query=share, calibration=1.0) for share in (0.001, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)))
SIZES = (1_000, 10_000, 60_000)  # images of the query set
# Digits on photographs are hard enough for a small network that what it holds shows: of plain digits models that hold
# all of D_Q, and models that hold none, are nearly as sure, and whether they can be told apart hangs on the draw.
QUICKSTART = Forgetting(
    query=QuerySet(Dataset("digits-on-photos"), 0, 1000),
    calibration=Part(Dataset("digits-on-photos"), 1000, 400),
    outside=None,
    targets=(*NULL, *(Target(query=share, calibration=1.0) for share in SHARES)),
    network=Network("mlp1"),
    replicates=5,
    epochs=60,
    schedule=((48, 0.1),),
)
PLAIN = replace(
    QUICKSTART,
    query=QuerySet(Dataset("digits"), 0, 700),
    calibration=Part(Dataset("digits-on-photos"), 700, 700),
)

# The model that holds all of D_Q, and what each method of unlearning makes of it.
HELD = Target(query=1.0, calibration=1.0)
UNLEARNT = (HELD, *(replace(HELD, unlearning=method) for method in UNLEARNING))

PRESETS: Mapping[str, Forgetting | tuple[Forgetting, ...]] = {
    "quickstart": QUICKSTART,
    "null": replace(QUICKSTART, targets=NULL),
    "unlearning": replace(PLAIN, targets=UNLEARNT),
    "smoke": replace(
        QUICKSTART,
        query=QuerySet(Dataset("digits"), 0, 200),
        calibration=Part(Dataset("digits-on-photos"), 200, 200),
        targets=(*NULL, Target(query=1.0, calibration=1.0)),
        replicates=2,
        epochs=10,
        permutations=999,
    ),
    "plain-digits": PLAIN,
    "table1": TABLE1,
    "table1-without-svhn": WITHOUT_SVHN,
    "table2": TABLE2,
    "figure2": replace(TABLE2, measures=("examples",)),
    "sensitivity": tuple(
        replace(TABLE1, query=replace(MNIST, examples=size), outside=None, targets=CURVE) for size in SIZES
    ),
}

# What each repeats: a part of the paper, or a setting of ours.
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: digits on photographs",
    "null": "ours: quickstart with a target that is trained as the calibration models are",
    "unlearning": "ours: what each method of unlearning makes of the model that holds all of D_Q, digits",
    "smoke": "ours: 200 digits",
    "plain-digits": "ours: plain digits beside digits on photographs, as in the example of the provider",
    "table1": "Table 1: D_Q MNIST, D_C SVHN, out of domain CIFAR-10",
    "table1-without-svhn": "ours: Table 1 with digits on photographs for SVHN, and half of D_Q's held back",
    "table2": "Table 2: D_Q ACDC at 3 T, D_C at 1.5 T; ResNet-18",
    "figure2": "Figure 2: an image of each class in each set",
    "sensitivity": "ours: power over shares of D_Q from .1 % on, for three sizes of D_Q",
}


DEEP = ("densenet100", "resnet18")


def tiny(config: Forgetting) -> Forgetting:
    """The same audit on embedded data, in seconds; of a slow network as little as is."""
    deep, plain = config.network.name in DEEP, config.network.name == "mlp1"
    size = "#8x8" if deep else "" if plain else "#16x16"
    count = 120 if plain else 40
    return replace(
        config,
        query=QuerySet(
            Dataset(f"digits{size}"),
            examples=count,
            held_back=0.5 if config.query.is_controlled else 0.0,
            secret=config.query.secret,
        ),
        calibration=Part(Dataset(f"digits-on-photos{size}"), count, count),
        outside=None if config.outside is None else Part(Dataset(f"photos{size}"), 0, count),
        crop=(4 if deep else 12) if config.crop else 0,
        replicates=min(config.replicates, 2),
        epochs=min(config.epochs, 1 if deep else 2),
        link=1 if config.link else 0,
        permutations=min(config.permutations, max(199, least_permutations(len(config.targets)))),
    )


class PublishedNumbers(NamedTuple):
    """A column: KS to the query model, and rho, to three decimals."""

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
    """The columns of a table by what the target was trained on; none for the empty name."""
    if not cell:
        return {}
    targets = (*PUBLISHED, Target(outside=1.0))[: len(KS[cell])]
    return {target: PublishedNumbers(*printed) for target, *printed in zip(targets, KS[cell], RHO[cell], strict=True)}


def numbers_by_name(cell: str) -> Mapping[str, PublishedNumbers]:
    """The columns of a table by the names of their targets; none for the empty name."""
    return {str(target): printed for target, printed in numbers_by_target(cell).items()}


def printed_cell(config: Forgetting) -> str:
    """The table with this data and training, whichever targets are audited and however often; empty for none."""
    if "scores" not in config.measures:
        return ""
    return next((name for name, cell in CELLS.items() if matches_cell(cell, config)), "")


def matches_cell(cell: Forgetting, config: Forgetting) -> bool:
    """Whether a run belongs to the cell; out-of-domain data are needed for their own column only."""
    outside = (
        config.outside is None or cell.outside is None or unpinned_part(config.outside) == unpinned_part(cell.outside)
    )
    return outside and published_settings(config) == published_settings(cell)


def published_settings(config: Forgetting) -> Forgetting:
    """The config but for what the paper does not say or its columns vary."""
    return with_defaults(
        config,
        ("measures", "replicates", "link", "decimals", "negligible", "permutations", "seed"),
        query=replace(config.query, data=Dataset(config.query.data.name)),
        calibration=unpinned_part(config.calibration),
        targets=PUBLISHED,  # without any out of domain, which leaves out its data
        partial=(),  # the paper's sets have no control set
    )


def unpinned_part(part: Part) -> Part:
    """The part of the data by name, whatever was found there."""
    return replace(part, data=Dataset(part.data.name))


# Of data other than the embedded digits all is taken.
WHOLE = {"query.examples": 0}
QUERY = Asked("query.data", "Which images are to be forgotten (D_Q)?", "folder:ours", "digits", sets=WHOLE)
CALIBRATION = Asked(
    "calibration.data",
    "Images of the same domain and shape that are none of these (D_C)?",
    "folder:theirs",
    "digits-on-photos",
    sets={"calibration.first": 0, "calibration.examples": 0},
)
KEPT_BACK = "Images of the same source as D_Q that nobody was ever given"
CONTROL = Asked("query.control.data", f"{KEPT_BACK}?", "folder:kept")
PERHAPS = Asked("query.control.data", f"{KEPT_BACK} (empty: half of D_Q is held back)?", "folder:kept", optional=True)

SITUATIONS = (
    Situation("data", "set", (QUERY, PERHAPS, CALIBRATION, NETWORK), preset="quickstart"),
    Situation(
        "model",
        "set",
        (Asked("given.models", "The model's file?", "model.pt"), QUERY, CONTROL, CALIBRATION, NETWORK),
        preset="quickstart",
    ),
    Situation(
        "outputs",
        "set",
        (
            QUERY,
            PERHAPS,
            CALIBRATION,
            NETWORK,
            TABLE,
            Asked("query.secret", "The secret with which probes were handed out (empty: none)?", "", optional=True),
        ),
        preset="quickstart",
        table="given.outputs",
        secret="query.secret",
    ),
)
