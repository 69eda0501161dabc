"""The paper's tables and figure as configs, those that need no SVHN, and a few settings of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.audits.forgetting.config import PUBLISHED, SHARES, Forgetting
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.forgetting.target import Target
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tasks.models.catalog import Network
from tasks.training.unlearning import UNLEARNING

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
