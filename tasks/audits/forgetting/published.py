"""What the paper prints, to stand beside what a run of its settings gives.

Liu & Tsaftaris 2020, "Have you forgotten?", tables 1 and 2. KS of MNIST to itself is .049 and not 0, so that the
target was trained anew there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tasks.audits.forgetting.config import PUBLISHED, Forgetting
from tasks.audits.forgetting.presets import TABLE1, TABLE2
from tasks.audits.forgetting.target import Target
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part


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
CALIBRATION = Target(calibration=1.0)  # whose rho is 1, and whose KS all others are divided by


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
    like = Forgetting()
    return replace(
        config,
        query=replace(config.query, data=Dataset(config.query.data.name)),
        calibration=unpinned_part(config.calibration),
        targets=PUBLISHED,  # without any out of domain, which leaves out its data
        measures=like.measures,
        replicates=like.replicates,
        link=like.link,
        decimals=like.decimals,
        partial=(),  # the paper's sets have no control set
        negligible=like.negligible,
        permutations=like.permutations,
        seed=like.seed,
    )


def unpinned_part(part: Part) -> Part:
    """The part of the data by name, whatever was found there."""
    return replace(part, data=Dataset(part.data.name))
