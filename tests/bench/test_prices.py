"""What plans are said to take is of the size of what they take. How near, the bench tells, where nothing else runs."""

from __future__ import annotations

import pytest

from bench.prices import SETTINGS, said_and_taken

SLOW = set(SETTINGS) - {"unique_feature"}
APART = 5  # a machine that does other things at once makes processor time longer by a factor of two and more


@pytest.mark.parametrize(
    "audit", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SETTINGS]
)
def test_a_small_preset_takes_about_what_it_was_said_to(audit: str) -> None:
    price, taken = said_and_taken(audit)
    assert () == price.unknown
    assert 1 / APART < price.here.expected / taken < APART, (price.here, taken)
    assert price.here.low <= price.here.expected <= price.here.high
