"""Speed of rho and its interval, compared with a loop over scipy.stats.ks_2samp.

    python -m bench.forgetting [--tiny] [--out bench/results/NAME.md]

The rival computes the distance between each pair of models and its asymptotic p-value. Engram computes all of rho:
distances and interval. Both use one thread, and the ratio compares median CPU times from the same run. The confidences
are float32 sigmoids of normal noise, and are higher for the query models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from bench.measuring import Row, Run, bench_parser, clock_for, in_turn, publish
from measurement.report import measurement_facts
from tasks.audits.forgetting.rho import Ratio, Score, ratio

Array = NDArray[np.float64]
CPU = torch.device("cpu")
ALTERNATIVES = {"published": "two-sided", "one-sided": "less"}


@dataclass(frozen=True)
class Size:
    models: int  # of each of the three kinds
    images: int

    def __str__(self) -> str:
        return f"3 x {self.models} models, {self.images:,} images"


FULL = Size(5, 10_000)
TINY = Size(2, 50)


def rows(tiny: bool, score: Score = "one-sided") -> Iterator[Row]:
    """Yield the seconds for rho and its interval, and for the rival."""
    size = TINY if tiny else FULL
    kind, clock = clock_for(CPU)
    query, calibration, target = confidences(size)
    references = np.concatenate((target, calibration))
    torch.set_num_threads(1)
    runs: dict[str, Run] = {
        "engram": partial(by_engram, query, calibration, target, score),
        "scipy": partial(by_scipy, query, references, score),
    }
    seconds = in_turn(runs, 1 if tiny else 3, clock)
    engram_seconds = seconds["engram"]
    rival_seconds = seconds["scipy"]
    yield Row(
        f"{score} rho and its interval, {size}, {kind}",
        f"{engram_seconds:.3f} s",
        f"{rival_seconds:.3f} s, scipy.stats.ks_2samp",
        rival_seconds / engram_seconds,
    )


def confidences(size: Size) -> tuple[Array, Array, Array]:
    """Draw the confidences of query, calibration and target models, each (models, images)."""
    stream = np.random.default_rng(0)
    shifts = (3.0, 0.0, 0.0)
    logits = [shift + 2 * stream.normal(size=(size.models, size.images)) for shift in shifts]
    query, calibration, target = (
        (1 / (1 + np.exp(-values.astype(np.float32)))).astype(np.float64) for values in logits
    )
    return query, calibration, target


def by_engram(query: Array, calibration: Array, target: Array, score: Score) -> Ratio:
    return ratio(query, calibration, target, score)


def by_scipy(query: Array, references: Array, score: Score) -> Array:
    """Return the distances between query and reference models, (query, references)."""
    from scipy import stats

    distances = np.empty((len(query), len(references)))
    for row, member in enumerate(query):
        for column, reference in enumerate(references):
            result = stats.ks_2samp(member, reference, ALTERNATIVES[score], method="asymp")
            distances[row, column] = result.statistic
    return distances


def main() -> None:
    arguments = bench_parser(__doc__).parse_args()
    setting = measurement_facts("synthetic confidences", CPU)
    setting["versions"] += f", SciPy {scipy.__version__}"
    publish("rho and its interval", setting, list(rows(arguments.tiny)), arguments.out)


if __name__ == "__main__":
    main()
