from __future__ import annotations

from dataclasses import dataclass, field

from tasks.contract.job import ADDED_LATER, text_of


@dataclass(frozen=True)
class Small:
    rate: float
    name: str = "plain"


@dataclass(frozen=True)
class Grown(Small):
    width: float = field(default=1.0, metadata={ADDED_LATER: True})
    part: Small | None = field(default=None, metadata={ADDED_LATER: True})


def test_the_text_of_a_config_has_no_later_field_at_its_default() -> None:
    assert repr(Small(0.5)).replace("Small", "Grown") == text_of(Grown(0.5)) == text_of(Grown(0.5, width=1))
    assert "Grown(rate=0.5, name='plain', width=2.0)" == text_of(Grown(0.5, width=2.0))
    assert "part=Small(rate=1, name='plain')" in text_of(Grown(0.5, part=Small(1)))
