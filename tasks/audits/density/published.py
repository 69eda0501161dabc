"""The paper's printed numbers of each cell, shown beside those of a run that repeats it.

The published score leans upwards, by how much depends on the numbers of partitions and folds, and on how far log p of
an image varies between models: on codes and epochs, and on whether its binary pixels are drawn afresh for each. The
numbers stand beside a run of all the paper's settings (section 4.1 and supplement B) and beside no other.

Van den Burg & Williams 2021, the captions of figures 2, 4 and 7 to 9. The ends of the ranges are approximate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.audits.density.config import Density
from tasks.audits.density.presets import CELEBA, CIFAR10, MNIST3, MNIST4
from tasks.datasets.dataset import Dataset

Numbers = Mapping[str, float]  # of the published score, by the name of the statistic

CELLS: Mapping[str, tuple[Density, Numbers]] = {
    "MNIST, 1e-3": (MNIST3, {"median": 4.4, "lowest": -18.0, "highest": 210.0}),
    "MNIST, 1e-4": (MNIST4, {"median": 3.5, "lowest": -13.0, "highest": 80.0}),
    "CIFAR-10": (CIFAR10, {"median": 97.0, "lowest": -180.0, "highest": 900.0}),
    "CelebA": (CELEBA, {"median": 60.0, "lowest": -450.0, "highest": 6500.0}),
}


def repeats(config: Density) -> str:
    """The cell whose every setting the config has; empty for none."""
    return next(
        (
            name
            for name, (cell, _) in CELLS.items()
            if comparable_config(replace(cell, afresh=True)) == comparable_config(config)
        ),
        "",
    )


def numbers(cell: str) -> Numbers:
    """The cell's numbers; none for the empty name."""
    return CELLS[cell][1] if cell else {}


def comparable_config(config: Density) -> Density:
    """The config without what the score after the last epoch does not depend on, and without the seed and the draws."""
    like = Density()
    return replace(
        config,
        data=Dataset(config.data.name),
        partitions=like.partitions,
        left_out=like.left_out,  # of the other estimator
        measures=like.measures,
        every=like.every,
        link=like.link,
        negligible=like.negligible,
        detectable=like.detectable,
        permutations=like.permutations,
        draws=like.draws,
        outlier_bin=like.outlier_bin,
        score_bin=like.score_bin,
        seed=like.seed,
    )
