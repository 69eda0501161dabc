"""How many probe images the published test needs to see an M of a size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tasks.summaries import Row, alone, row

SIZES = (0.001, 0.01, 0.1)  # nats: M of about Table 2's smallest, and larger


def probe_count_rows(spreads: Sequence[float], unit: str) -> Iterator[Row]:
    """The probe images for a power of 0.8 at the median of the models' spreads of d_u - d_r."""
    ordered = sorted(spreads)
    for size in SIZES:
        count = float(required_probes(ordered[len(ordered) // 2], size)) if ordered else None
        yield row("probe images needed", {"M": size, "power": 0.8}, alone(count, len(ordered)), unit)


def required_probes(sd: float, size: float, level: float = 0.05, power: float = 0.8) -> int:
    """The probe images with which the paired one-tailed t-test sees an M of this size with this probability.

        n = ((z(1 - level) + z(power)) sd / M)^2

    `sd` is that of d_u - d_r over probe images. The normal approximation: a handful more are needed where n is small.
    It speaks of M, of one model; not of memory, which M alone does not show.
    """
    from scipy import stats

    z = float(stats.norm.ppf(1 - level) + stats.norm.ppf(power))
    return max(2, int(np.ceil((z * sd / size) ** 2)))
