"""How many probe images the published test needs to see an M of a size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.audits.unique_feature.scores import probes_needed
from tasks.summaries import Row, alone, row

SIZES = (0.001, 0.01, 0.1)  # nats: M of about Table 2's smallest, and larger


def needed(spreads: Sequence[float], unit: str) -> Iterator[Row]:
    """The probe images for a power of 0.8 at the median of the models' spreads of d_u - d_r."""
    ordered = sorted(spreads)
    for size in SIZES:
        count = float(probes_needed(ordered[len(ordered) // 2], size)) if ordered else None
        yield row("probe images needed", {"M": size, "power": 0.8}, alone(count, len(ordered)), unit)
