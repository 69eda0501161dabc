"""What the paper prints, to stand beside what a run of its settings gives.

Meehan et al. 2023, table in Figure 9 (d): the deja vu score at 20 % and the accuracy of linear probes on ImageNet's
validation pictures, on the projector's and on the backbone's output; trained on 300 pictures per class for 1000 epochs
with a ResNet-101. In shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.presets import criterion_cell
from tasks.datasets.dataset import Dataset
from tasks.self_supervised.criterion import Criterion


class Printed(NamedTuple):
    """A row of the table."""

    score: float
    projector: float
    backbone: float


CRITERIA: Mapping[str, Printed] = {
    "supervised": Printed(0.089, 0.553, 0.611),
    "byol": Printed(0.080, 0.543, 0.594),
    "simclr": Printed(0.100, 0.442, 0.541),
    "dino": Printed(0.145, 0.263, 0.557),
    "barlow": Printed(0.305, 0.337, 0.544),
    "vicreg": Printed(0.332, 0.403, 0.552),
}


OPEN = (
    "measures", "recorded", "link", "accumulate", "precision", "layers", "shown", "negligible", "partings", "resamples",
    "seed", "diffusion",
)  # fmt: skip
OF_CRITERIA = ("invariance", "variance", "covariance", "temperature", "redundancy", "momentum")


def printed_numbers(cell: str) -> Printed:
    """The numbers of this criterion."""
    return CRITERIA[cell]


def repeats(config: DejaVu) -> str:
    """The criterion of the table that the run repeats; empty where it has other settings."""
    if config.criterion not in CRITERIA or config.asked_layers[0] != config.top:
        return ""
    like = criterion_cell(config.criterion)
    return config.criterion if comparable_config(config) == comparable_config(like) else ""


def comparable_config(config: DejaVu) -> tuple[DejaVu, Criterion]:
    """The config without what the paper leaves open or what bears on no number of the table."""
    like = DejaVu()
    same = {name: getattr(like, name) for name in OPEN + OF_CRITERIA}
    common = replace(config, **same, data=Dataset(config.data.name), k=config.k[:1])
    return common, config.criterion_settings
