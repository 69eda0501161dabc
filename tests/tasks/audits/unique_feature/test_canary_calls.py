"""Canaries called one by one: how many are called, how many of them wrongly, and what a run says where few are."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature.canary_calls import call_canaries, count_rows, share_beyond_chance
from tasks.audits.unique_feature.verdict import BEYOND, CALLED, GLYPHS, verdict
from tasks.datasets.features import Glyph
from tasks.schemas import SUMMARY
from tasks.statistics import mean
from tasks.summaries import Row, row
from tests.tasks.summary_rows import by_name

A = Glyph()
FAMILY, EVERY_GLYPH = 201, 4_457_400  # members that ranks are among


def counted(p_values: Iterable[float], among: int = FAMILY) -> list[Row]:
    """The rows of the summary on canaries of these p-values, each with a training seed of its own."""
    found = call_canaries([{"canary": at, "p_value": p} for at, p in enumerate(p_values)], [])
    return list(count_rows(found, among, {GLYPHS: among} if among == EVERY_GLYPH else {"others": among - 1}))


def drawn(rng: np.random.Generator, remembered: int, canaries: int, shift: float, among: int) -> np.ndarray:
    """Ranks' p-values: of canaries that nobody remembers, and of some whose feature stands `shift` sds above.

    The features that a rank is among score normally; of all glyphs so many that their shares are the normal's.
    """
    above = rng.normal(0, 1, canaries)
    above[:remembered] += shift
    if among == EVERY_GLYPH:
        return np.ceil(stats.norm.sf(above) * among).clip(1) / among
    others = rng.normal(0, 1, (canaries, among - 1))
    return np.asarray((1 + (others >= above[:, None]).sum(axis=1)) / among)


def answered(
    rng: np.random.Generator, remembered: int, canaries: int, draws: int, shift: float = 3.0, among: int = FAMILY
) -> list[tuple[str, bool]]:
    """The answers to runs whose effects are those of the remembered alone, and whether any canary was called."""
    answers = []
    for _ in range(draws):
        effects = rng.normal(0, 0.1, canaries)
        effects[:remembered] += 0.3
        first = row("M_w effect", {"images": "probe"}, mean(effects), "pair of trainings", 0.0)
        ranked = counted(drawn(rng, remembered, canaries, shift, among), among)
        answer = verdict(A, A, pa.Table.from_pylist([first, *ranked], SUMMARY)).answer
        answers.append((answer, ranked[0]["estimate"] > 0))
    return answers


def test_the_canaries_called_and_those_beyond_chance_are_counted() -> None:
    p_values = [1 / 201] * 3 + [0.04] + [0.5] * 16
    found = by_name(counted(p_values))
    called = found[CALLED, '{"false discovery rate": 0.05, "others": 200}']
    assert pytest.approx([3 / 20, None, None, 20, "canary", 0.0, 20 / 201 / 3, None]) == called
    share = found[BEYOND, '{"p": 0.05}']
    assert (0.2 - 0.05) / 0.95 == pytest.approx(share[0])
    assert 0 < share[1] < share[0] < share[2] < 1
    assert (0.0, 0.0) == (share_beyond_chance(0, 20).value, share_beyond_chance(0, 20).low)


def test_where_nothing_is_remembered_a_run_accuses_in_at_most_seven_and_a_half_percent() -> None:
    found = answered(np.random.default_rng(20), 0, 12, 400)
    assert sum(answer == "memorised" for answer, _ in found) / 400 <= 0.075 + 0.02
    assert sum(called for _, called in found) / 400 <= 0.05 + 0.02


def test_a_minority_is_found_in_eight_of_ten_runs_and_never_said_to_be_not_seen() -> None:
    found = answered(np.random.default_rng(21), 6, 20, 200)
    assert sum(called for _, called in found) / 200 >= 0.8
    assert not any(answer == "not seen" and called for answer, called in found)


def test_a_minority_too_small_to_be_called_is_never_said_to_be_not_seen() -> None:
    found = answered(np.random.default_rng(24), 9, 100, 50)
    assert not any(answer == "not seen" for answer, _ in found)


def test_among_few_others_those_that_are_first_are_counted() -> None:
    # Of 11 members none has p below 1/11: 12 firsts of 40 are far more than the 3.6 that chance brings.
    found = by_name(counted([1 / 11] * 12 + [0.5] * 28, 11))
    share = found[BEYOND, json.dumps({"p": 1 / 11})]
    assert (12 / 40 - 1 / 11) / (10 / 11) == pytest.approx(share[0])
    assert share[6] < 0.001


def test_of_the_called_canaries_at_most_a_twentieth_is_called_wrongly() -> None:
    rng = np.random.default_rng(22)
    wrong = []
    for _ in range(400):
        p_values = drawn(rng, 10, 20, 3.0, FAMILY)
        found = call_canaries([{"canary": at, "p_value": p} for at, p in enumerate(p_values)], [])
        called = np.array([each["called"] for each in sorted(found, key=lambda each: int(each["canary"]))])
        wrong.append(called[10:].sum() / max(1, called.sum()))
    assert np.mean(wrong) <= 0.05


@pytest.mark.parametrize(("remembered", "shift"), [(0, 0.0), (20, 9.0)])
def test_the_share_beyond_chance_covers_the_share_that_is_remembered(remembered: int, shift: float) -> None:
    rng = np.random.default_rng(23)
    covered = 0
    for _ in range(300):
        found = share_beyond_chance(int((drawn(rng, remembered, 40, shift, FAMILY) <= 0.05).sum()), 40)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= remembered / 40 <= found.high
    assert covered / 300 >= 0.9


@pytest.mark.parametrize("canaries", [12, 100])
def test_exact_ranks_accuse_as_seldom_and_clear_what_200_others_cannot(canaries: int) -> None:
    found = answered(np.random.default_rng(25), 0, canaries, 400, among=EVERY_GLYPH)
    assert sum(answer == "memorised" for answer, _ in found) / 400 <= 0.076 + 0.02
    assert sum(called for _, called in found) / 400 <= 0.05 + 0.02
    assert sum(answer == "not seen" for answer, _ in found) / 400 >= 0.7


def test_exact_ranks_find_one_of_a_hundred_in_nine_of_ten_runs() -> None:
    found, missed = (answered(np.random.default_rng(26), 1, 100, 200, 5.0, among) for among in (EVERY_GLYPH, FAMILY))
    assert sum(called for _, called in found) / 200 >= 0.9
    assert sum(called for _, called in missed) / 200 <= 0.05
