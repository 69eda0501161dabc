"""Power to detect that a given share of the images is memorised. The score is an average over images."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.deja_vu.attack import SETS
from tasks.audits.deja_vu.config import DejaVu
from tasks.contract.power import GOAL, Power, mean_rate, smallest_size
from tasks.datasets.boxed.partition import split_pictures
from tasks.datasets.catalog import load_with_boxes

SHARE = 0.1  # share of the confident images whose object is named only because of memorisation
KNOWN = 0.5  # share of objects that backgrounds reveal; at 0.5 the variance is largest


def power(config: DejaVu) -> Iterator[Power]:
    """Yield how often the audit detects memorisation of SHARE of the confident images in both sets."""
    parts = split_pictures(load_with_boxes(config.data), config.partition)
    attacked = sum(len(parts.rows_to_attack(name)) for name in SETS)
    pictures = max(1, attacked * config.confident_percent // 100)

    def rate(size: int) -> float:
        error = (2 * KNOWN * (1 - KNOWN) / size) ** 0.5
        return mean_rate(SHARE - config.negligible, error)

    required_size = smallest_size(pictures, 1, lambda size: rate(size) >= GOAL, factor=1.05)
    if required_size is None:
        advice = ""
    else:
        advice = f"attack {required_size * 100 // config.confident_percent:,} images (per_class, attack_images)"
    effect = f"a tenth of the {pictures:,} confident images memorised"
    yield Power(effect, rate(pictures), advice)
