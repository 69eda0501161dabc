"""The settings with names, what they repeat, and the situation in which somebody needs the audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.audits.membership.config import Membership
from tasks.contract.situation import NETWORK, TABLE, Asked, Situation
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import Network
from tasks.training.recipe import Privacy

QUICKSTART = Membership(
    data=Dataset("digits-on-photos"), network=Network("mlp1"), models=16, examples=400, epochs=20, batch=32,
    negligible=0.03,
)  # fmt: skip
SMOKE = replace(QUICKSTART, data=Dataset("digits"), models=8, examples=100, epochs=3)
MNIST = Membership(network=Network("mlp1"), models=32, examples=10_000)
CIFAR = Membership(data=Dataset("cifar10"), network=Network("cnn2"), models=16, epochs=50, augmentation=True)

# As many records as Shokri et al. 2017 train a model on, in each half.
PURCHASE = Membership(data=Dataset("purchase100"), network=Network("mlp1"), models=32, examples=20_000, epochs=30)
TEXAS = replace(PURCHASE, data=Dataset("texas100"))

# Every step sees all images, so that the noise is that of a Gaussian mechanism, from which a ranking learns most.
ONE_RUN = Membership(
    data=Dataset("digits"), network=Network("mlp1"), models=1, canaries=700, mislabelled=True, epochs=60, batch=1437,
    learning_rate=1e-2,
)  # fmt: skip
LADDER = (ONE_RUN, *(replace(ONE_RUN, privacy=Privacy(epsilon)) for epsilon in (16.0, 4.0, 1.0)))

PRESETS: Mapping[str, Membership | tuple[Membership, ...]] = {
    "quickstart": QUICKSTART,
    "null": replace(QUICKSTART, unseen=True),
    "smoke": SMOKE,
    "mnist": MNIST,
    "cifar10": tuple(replace(CIFAR, models=models) for models in (16, 64, 256)),
    "purchase100": PURCHASE,
    "texas100": TEXAS,
    "one_run": LADDER,
    "ladder": tuple(replace(config, models=8) for config in LADDER),
}
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: 16 models on halves of 400 digits on photographs",
    "null": "ours: the models of quickstart, asked about 400 other images",
    "smoke": "ours: 8 small models on halves of 100 digits",
    "mnist": "ours: 32 models on halves of 10,000 images of MNIST",
    "cifar10": "ours: 16, 64 and 256 models on halves of CIFAR-10, as Carlini et al. 2022, with a smaller network",
    "purchase100": "ours: 32 models on halves of 20,000 records of Purchase-100",
    "texas100": "ours: 32 models on halves of 20,000 records of Texas-100",
    "one_run": "ours: 700 mislabelled canaries in digits by coins, one model without privacy and at three epsilons",
    "ladder": "ours: the same with 8 models, each ranked beside the others",
}
WHOSE = (
    Asked("given.members", "Images that the model was trained on?", "folder:scans#64x64"),
    Asked("given.others", "Images of the same source that it was not trained on?", "folder:others#64x64"),
    NETWORK,
)
GIVEN = {"models": 64}
SITUATIONS = (
    Situation(
        "data",
        "unknown",
        (
            Asked("data", "Which images?", "folder:scans#64x64", "digits-on-photos", sets={"examples": 0}),
            NETWORK,
        ),
        preset="quickstart",
    ),
    Situation("model", "unknown", (Asked("given.model", "The model's file?", "model.pt"), *WHOSE), sets=GIVEN),
    Situation("outputs", "unknown", (*WHOSE, TABLE), sets=GIVEN, table=TABLE.field),
)
