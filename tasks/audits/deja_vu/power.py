"""How often the audit finds that a stated share of the pictures is remembered: the score is an average over them."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.deja_vu.attack import SETS
from tasks.audits.deja_vu.config import DejaVu
from tasks.contract.power import GOAL, Power, mean_rate, smallest_size
from tasks.datasets.boxed.partition import split_pictures
from tasks.datasets.catalog import load_with_boxes

SHARE = 0.1  # of the confident pictures, whose object is known by memory alone
KNOWN = 0.5  # of the objects that a background gives away: the variance is largest


def power(config: DejaVu) -> Iterator[Power]:
    """How often a share of SHARE is found among the confident pictures of both sets."""
    parts = split_pictures(load_with_boxes(config.data), config.partition)
    attacked = sum(len(parts.rows_to_attack(name)) for name in SETS)
    pictures = max(1, attacked * config.confident // 100)

    def rate(size: int) -> float:
        error = (2 * KNOWN * (1 - KNOWN) / size) ** 0.5
        return mean_rate(SHARE - config.negligible, error)

    enough = smallest_size(pictures, 1, lambda size: rate(size) >= GOAL, factor=1.05)
    more = "" if enough is None else f"attack {enough * 100 // config.confident:,} pictures (per_class, attacked)"
    what = f"a tenth of the {pictures:,} confident pictures remembered"
    yield Power(what, rate(pictures), more)
