"""Settings of a summary's rows, read and shown in one place."""

from __future__ import annotations

import pytest

from orchestrator import rounding


@pytest.mark.parametrize(
    ("setting", "varied", "shown"),
    [
        ('{"images": "probe", "k": 5}', {"images": "probe", "k": 5}, "images=probe, k=5"),
        ("{}", {}, ""),
        ("", {}, ""),
        (None, {}, ""),
        ("[1, 2]", None, "[1, 2]"),
        ("of another kind", None, "of another kind"),
    ],
)
def test_what_was_varied_is_told_and_what_is_no_setting_is_left_as_it_is(
    setting: str | None, varied: dict[str, object] | None, shown: str
) -> None:
    assert varied == rounding.parse_setting(setting)
    assert shown == rounding.format_setting(setting)


def test_the_place_that_shows_a_setting_writes_its_values() -> None:
    assert "rate = 0.333" == rounding.format_setting('{"rate": 0.3333333}', lambda value: f"{value:.3g}", equals=" = ")
