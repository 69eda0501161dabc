"""How fast rho and its interval are computed here, beside a loop over scipy.stats.ks_2samp.

    python -m bench.forgetting [--tiny] [--out bench/results/NAME.md]

The rival takes the distance of each pair of models, its p-value by the quick way. Ours is all of rho: distances and
interval. Both have one thread, and the ratio is of two median CPU times of the same run. The confidences are float32
sigmoids of normal noise, of which the query models' are the surer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from bench.measuring import Row, Run, bench_parser, clock_of, in_turn, publish
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


FULL, TINY = Size(5, 10_000), Size(2, 50)


def rows(tiny: bool, score: Score = "one-sided") -> Iterator[Row]:
    """Seconds of rho with its interval, and of the rival."""
    size = TINY if tiny else FULL
    kind, clock = clock_of(CPU)
    query, calibration, target = confidences(size)
    others = np.concatenate((target, calibration))
    torch.set_num_threads(1)
    runs: dict[str, Run] = {
        "engram": partial(by_engram, query, calibration, target, score),
        "scipy": partial(by_scipy, query, others, score),
    }
    seconds = in_turn(runs, 1 if tiny else 3, clock)
    ours, theirs = seconds["engram"], seconds["scipy"]
    yield Row(
        f"{score} rho with its interval, {size}, {kind}",
        f"{ours:.3f} s",
        f"{theirs:.3f} s, scipy.stats.ks_2samp",
        theirs / ours,
    )


def confidences(size: Size) -> tuple[Array, Array, Array]:
    """Of query, calibration and target models, (models, images) each."""
    stream = np.random.default_rng(0)
    shifts = (3.0, 0.0, 0.0)
    logits = [shift + 2 * stream.normal(size=(size.models, size.images)) for shift in shifts]
    query, calibration, target = ((1 / (1 + np.exp(-each.astype(np.float32)))).astype(np.float64) for each in logits)
    return query, calibration, target


def by_engram(query: Array, calibration: Array, target: Array, score: Score) -> Ratio:
    return ratio(query, calibration, target, score)


def by_scipy(query: Array, others: Array, score: Score) -> Array:
    """The distances of all query models and all others, (query, others)."""
    from scipy import stats

    tested = [[stats.ks_2samp(one, other, ALTERNATIVES[score], method="asymp") for other in others] for one in query]
    return np.array([[float(each.statistic) for each in row] for row in tested])


def main() -> None:
    asked = bench_parser(__doc__).parse_args()
    setting = measurement_facts("confidences of made-up models", CPU)
    setting["versions"] += f", SciPy {scipy.__version__}"
    publish("rho and its interval", setting, list(rows(asked.tiny)), asked.out)


if __name__ == "__main__":
    main()
