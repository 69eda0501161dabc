"""How fast rho and its interval are computed here, beside a loop over scipy.stats.ks_2samp.

    python bench/forgetting.py [--tiny] [--out bench/results/NAME.md]

The rival takes the distance of each pair of models anew in each resample of the images, its p-value by the quick way;
it is timed over a few resamples and counted for as many as ours. Ours is all of rho: distances, resamples, interval. In
resamples it looks at 256 quantiles of all confidences and where models differ most, and the rival at every value. Both
have one thread, and the ratio is of two median CPU times of the same run. The confidences are float32 sigmoids of
normal noise, of which the query models' are the surer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from bench.measuring import Row, Run, clock_of, here, in_turn, parser, publish
from tasks.audits.forgetting.kolmogorov_smirnov import Score
from tasks.audits.forgetting.rho import Ratio, ratio

Array = NDArray[np.float64]
CPU = torch.device("cpu")
ALTERNATIVES = {"published": "two-sided", "one-sided": "less"}


@dataclass(frozen=True)
class Size:
    models: int  # of each of the three kinds
    images: int
    resamples: int
    few: int  # resamples of the rival

    def __str__(self) -> str:
        return f"3 x {self.models} models, {self.images:,} images, {self.resamples:,} resamples"


FULL, TINY = Size(5, 10_000, 1000, 2), Size(2, 50, 10, 2)


def rows(tiny: bool, score: Score = "one-sided") -> Iterator[Row]:
    """Seconds of rho with its interval, and of the rival."""
    size = TINY if tiny else FULL
    kind, clock = clock_of(CPU)
    query, calibration, target = confidences(size)
    others = np.concatenate((target, calibration))
    torch.set_num_threads(1)
    runs: dict[str, Run] = {
        "engram": partial(by_engram, query, calibration, target, size.resamples, score),
        "scipy": partial(by_scipy, query, others, size.few, score),
    }
    seconds = in_turn(runs, 1 if tiny else 3, clock)
    ours, theirs = seconds["engram"], seconds["scipy"] / size.few * size.resamples
    yield Row(
        f"{score} rho with its interval, {size}, {kind}",
        f"{ours:.3f} s",
        f"{theirs:.1f} s, scipy.stats.ks_2samp, from {size.few} resamples",
        theirs / ours,
    )


def confidences(size: Size) -> tuple[Array, Array, Array]:
    """Of query, calibration and target models, (models, images) each."""
    stream = np.random.default_rng(0)
    shifts = (3.0, 0.0, 0.0)
    logits = [shift + 2 * stream.normal(size=(size.models, size.images)) for shift in shifts]
    query, calibration, target = ((1 / (1 + np.exp(-each.astype(np.float32)))).astype(np.float64) for each in logits)
    return query, calibration, target


def by_engram(query: Array, calibration: Array, target: Array, resamples: int, score: Score) -> Ratio:
    return ratio(query, calibration, target, None, resamples, np.random.default_rng(0), score)


def by_scipy(query: Array, others: Array, resamples: int, score: Score) -> Array:
    """The distances of all query models and all others in resamples of the images, (resamples, query, others)."""
    from scipy import stats

    stream, images = np.random.default_rng(0), query.shape[1]
    found = np.empty((resamples, len(query), len(others)))
    for number in range(resamples):
        drawn = stream.integers(images, size=images - 1)
        for i, one in enumerate(query):
            for j, other in enumerate(others):
                tested = stats.ks_2samp(one[drawn], other[drawn], ALTERNATIVES[score], method="asymp")
                found[number, i, j] = tested.statistic
    return found


def main() -> None:
    asked = parser(__doc__).parse_args()
    setting = here("confidences of made-up models", CPU)
    setting["versions"] += f", SciPy {scipy.__version__}"
    publish("rho and its interval", setting, list(rows(asked.tiny)), asked.out)


if __name__ == "__main__":
    main()
