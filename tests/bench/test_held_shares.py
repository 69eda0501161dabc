"""The bench of held shares: that worlds share no image, and that every target is judged and counted once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.cheating_owners import ANSWERS, trained
from bench.held_shares import KINDS, NULL, Judged, Kind, counted, judged, markdown, planned, worlds
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.trainings import target_shares
from tasks.datasets.catalog import load

TENTH = Kind(Target(query=0.1, calibration=1.0), 1, (1.0, 2.0))
OTHERS = Kind(Target(calibration=1.0, outside=0.5), 1)


def answered(kind: Kind, answers: Mapping[str, int], low: float = 0.0, high: float = 1.0) -> list[Judged]:
    """Targets with these answers, in two worlds by turns."""
    all_of_them = [answer for answer, count in answers.items() for _ in range(count)]
    return [Judged(at % 2, kind, 1.0, answer, low, high) for at, answer in enumerate(all_of_them)]


def test_worlds_have_images_and_seeds_of_their_own() -> None:
    configs = worlds(tiny=True, seed=7, count=2)
    assert [7, 8] == [config.seed for config in configs]
    whole = Target(query=1.0, calibration=1.0, outside=1.0)
    rows = [
        row
        for config in configs
        for share in target_shares(config, whole, 0)
        for row in share.rows(load(share.part.data))
    ]
    assert len(set(rows)) == len(rows)  # of digits and of digits on photographs, which have the same rows
    held = {kind.target.query for kind in KINDS}
    assert {0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0} == held
    assert 6 * NULL.models >= 40


def test_counts_have_wilson_intervals_and_say_which_share_is_found() -> None:
    found = [
        *answered(NULL, {"forgotten": 9, "not forgotten": 1}),
        *answered(TENTH, {"not forgotten": 8, "undecided": 2}, 0.2, 0.3),
    ]
    assert [(10, 10), (10, 0)] == [(row.below_high, row.above_low) for row in counted(found)]
    table = markdown(found)
    assert "| D_C | 1, 0, 0, 9 | 10 % [2, 40] | 90 % [60, 98] | 100 % [72, 100] | 100 % [72, 100] |" in table
    assert "| D_C + 0.1 D_Q | 8, 0, 2, 0 | 80 % [49, 94] | 0 % [0, 28] | 100 % [72, 100] | 0 % [0, 28] |" in table
    assert "as every greater one: 10 %." in table
    assert "are accused: 1 of 10, 10 % [2, 42], over 2 worlds, in 1 of which any is." in table


@pytest.mark.slow
def test_every_target_is_judged_alone_and_counted_once() -> None:
    kinds = (Kind(Target(calibration=1.0), 2), OTHERS, TENTH)
    (config,) = worlds(tiny=True, seed=3, count=1)
    models = trained(planned([config], kinds), None)
    found = list(judged(0, config, {model: table for (_, model), table in models.items()}, kinds))
    assert [(kinds[0], 1.0)] * 2 + [(OTHERS, 1.0), (TENTH, 1.0), (TENTH, 2.0)] == [
        (one.kind, one.temperature) for one in found
    ]
    rows = counted(found)
    assert [2, 1, 1, 1] == [row.count for row in rows]
    assert all(set(ANSWERS) == row.answers.keys() for row in rows)
    # A temperature changes no rank: the same limits, but for what six decimals tie.
    assert found[3].high == pytest.approx(found[4].high, abs=0.05)
