"""Calls of single canaries by the rank of their feature, and the rate of wrong calls."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature import PRESETS
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.design import load_design
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS
from tasks.audits.unique_feature.pairs.canary_verdicts import (
    BEYOND,
    CALLED,
    CANARY_VERDICTS,
    EXACT_VERDICTS,
    MEMORISED_BETS,
    MEMORISED_BEYOND,
    SHARED,
    TOTAL_BETS,
    call_canaries,
    canary_verdicts,
    count_rows,
    exact_rows,
    exact_verdicts,
    has_family,
    plan,
    plan_exact,
    rows,
    share_beyond_chance,
)
from tasks.audits.unique_feature.pairs.detection import family_rank_rows
from tasks.audits.unique_feature.population import GLYPHS, Population, inked_cells
from tasks.audits.unique_feature.trainings import trainings
from tasks.contract.job import NoSettings
from tasks.contract.measure import Tables
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Row, row
from tasks.contract.ties import TIED
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph, Words
from tasks.numerics.statistics import mean
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.made_up import configure, family, trained_family
from tests.tasks.summary_rows import by_name


def test_a_canary_has_the_rank_of_its_difference_and_the_shift_in_nats() -> None:
    twin = np.zeros((5, 2))
    models = [twin.copy(), twin.copy()]
    models[0][:, 1] = [0.5, 0.1, 0.2, 0.6, -0.1]
    models[1][:, 1] = [0.9, 0.1, 0.2, 0.3, -0.2]
    tables = [family(canary, {"canary": model, "twin": twin}, 1, canary) for canary, model in enumerate(models)]
    found = canary_verdicts(NoSettings(), tables[::-1])
    assert found.schema == CANARY_VERDICTS
    first, second = found.to_pylist()
    assert tuple(first[name] for name in ("canary", "pairs", "rank", "members", "p_value", "adjusted_p")) == (
        1,
        1,
        1,
        5,
        1 / 5,
        2 / 5,
    )
    assert tuple(second[name] for name in ("canary", "rank", "p_value", "called")) == (0, 2, 2 / 5, False)
    assert pytest.approx([first["shift"], second["shift"]]) == [0.9 - 0.1, 0.5 - 0.2]


def test_the_seeds_of_a_canary_are_ranked_together_and_their_rank_is_the_detection_tables() -> None:
    alone = trained_family(3, 0.5)
    (one,) = canary_verdicts(NoSettings(), [alone]).to_pylist()
    words = {(word["estimator"], word["model"]): word for word in family_rank_rows(alone)}
    assert words["paired family rank", "canary"]["p_value"] == one["p_value"]
    tables = [trained_family(3, 0.35).set_column(2, "seed", pa.array([seed] * 84)) for seed in range(3)]
    (canary,) = canary_verdicts(NoSettings(), tables).to_pylist()
    assert canary["pairs"] == 3
    assert canary["members"] == 41


def test_a_pair_that_lost_a_model_and_no_pairs_have_no_verdict() -> None:
    alone = trained_family(1, 9.0).filter(pa.compute.field("model") == "canary")
    nothing = canary_verdicts(NoSettings(), [alone])
    assert nothing.num_rows == 0
    assert list(rows(Tables([nothing]), None)) == []


def test_canaries_of_one_training_seed_have_no_interval_and_no_p_value() -> None:
    tables = [trained_family(canary, 9.0) for canary in range(3)]
    shared = [table.set_column(2, "seed", pa.array([7] * 84)) for table in tables]
    apart, together = (canary_verdicts(NoSettings(), each) for each in (tables, shared))
    assert [each["shared_seeds"][0].as_py() for each in (apart, together)] == [False, True]
    for (metric, setting), (_, low, high, *_, p_value, _) in by_name(rows(Tables([together]), None)).items():
        if metric == TIED:
            continue
        assert (json.loads(setting)[SHARED], low, high, p_value) == (True, None, None, None), metric
    with_p = {metric for (metric, _), (*_, p_value, _) in by_name(rows(Tables([apart]), None)).items() if p_value}
    assert with_p == {CALLED, BEYOND, MEMORISED_BEYOND, TOTAL_BETS, MEMORISED_BETS}


def test_without_others_to_rank_it_among_no_canary_is_judged() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=2, family=Family("letters", count=25))
    assert has_family(load_design(config), config.shape)
    assert len(plan(load_design(config), trainings(config))) == 1
    glyph = replace(config, feature=Glyph(kind="random", seed=3))  # no letter has others
    assert not has_family(load_design(glyph), glyph.shape)
    assert plan(load_design(glyph), trainings(glyph)) == ()


ALL_GLYPHS = 4_457_400


def ranked(canary: int, shift: float, seed: int | None = None, score: str = "pair", feature: str = "canary") -> Row:
    """A canary with the letter A, whose cells' slopes are noise and, where it has ink, the shift."""
    ink = inked_cells(Glyph())
    slopes = np.random.default_rng([canary, seed or 0]).normal(size=25) + shift * ink
    about = {"canary": canary, "label": 3, "seed": canary if seed is None else seed, "score": score, "feature": feature}
    return dict.fromkeys(EXACT_RANKS.names) | about | {"inked": 14, "ink": ink.tolist(), "slopes": slopes.tolist()}


def judged(*rows: Row) -> pa.Table:
    tables = [pa.Table.from_pylist([row], EXACT_RANKS) for row in rows]
    return exact_verdicts(NoSettings(), tables[::-1])


def test_each_canary_has_its_glyphs_rank_among_all_and_the_first_are_called() -> None:
    found = judged(
        ranked(1, 20.0), ranked(2, 0.0), ranked(2, 20.0, score="references"), ranked(2, 20.0, feature="other")
    )
    assert found.schema == EXACT_VERDICTS
    first, second = found.to_pylist()
    expected = (1, 3, 1, 14, 14, 1, ALL_GLYPHS, 1 / ALL_GLYPHS, True)
    names = ("canary", "label", "pairs", "read_out", "inked", "rank", "glyphs", "p_value", "called")
    assert expected == tuple(first[name] for name in names)
    assert math.log2(ALL_GLYPHS) == pytest.approx(first["exposure"])
    assert (second["canary"], second["called"]) == (2, False)
    assert 0.05 < second["p_value"] <= 1


def test_the_seeds_of_a_canary_are_ranked_together() -> None:
    weak = [ranked(1, 0.7, seed) for seed in range(9)]
    (one,) = judged(*weak).to_pylist()
    alone = [judged(row).to_pylist()[0]["p_value"] for row in weak]
    assert one["pairs"] == 9
    assert one["p_value"] < np.median(alone)


def test_the_summary_says_how_many_glyphs_they_were_ranked_among() -> None:
    for shared in (False, True):
        table = judged(*(ranked(at, 20.0, 7 if shared else None) for at in range(3)))
        setting = {"false discovery rate": 0.05, GLYPHS: ALL_GLYPHS} | ({SHARED: True} if shared else {})
        found = by_name(exact_rows(Tables([table]), None))
        share, *_, n, unit, _, p_value, _ = found[CALLED, json.dumps(setting, sort_keys=True)]
        assert (share, n, unit) == (1.0, 3, "canary")
        assert (None if shared else pytest.approx(1 / ALL_GLYPHS)) == p_value


def test_without_exact_ranks_nothing_is_said() -> None:
    assert list(exact_rows(Tables([judged()]), None)) == []


@pytest.mark.parametrize(
    ("changes", "exact"),
    [
        ({"measures": ("scores",)}, False),
        ({"measures": ("scores", "ranks")}, True),
        ({"measures": ("ranks",)}, True),
        ({"measures": ("scores", "ranks"), "drawn": True, "seeds": 2}, True),
        ({"measures": ("scores", "ranks"), "family": Family("letters", count=25)}, False),
        ({"measures": ("scores", "ranks"), "feature": Words("JOHN", size=8)}, False),
    ],
)
def test_exact_ranks_decide_where_they_are_measured_and_all_glyphs_can_be_counted(
    changes: dict[str, object], exact: bool
) -> None:
    data = {"data": pin(Dataset("digits")), "probe": pin(Dataset("photos"))}
    config: UniqueFeature = with_settings(PRESETS["smoke"], {**data, **changes})  # type: ignore[assignment]
    found = trainings(config)
    planned = [bool(each(load_design(config), found)) for each in (plan_exact, plan)]
    assert [exact, not exact] == planned


FAMILY, EVERY_GLYPH = 201, 4_457_400  # members that ranks are among


def ranked_canaries(p_values: Iterable[float]) -> list[Row]:
    """Canaries of these p-values, whose effects are far larger than the smallest relevant one."""
    return [{"canary": at, "p_value": p, "reduced_p": p, "tied": 0.0} for at, p in enumerate(p_values)]


def counted(p_values: Iterable[float], among: int = FAMILY) -> list[Row]:
    """The rows of the summary on canaries of these p-values, each with a training seed of its own."""
    found = call_canaries(ranked_canaries(p_values), [])
    return list(count_rows(found, Population(among, among == EVERY_GLYPH)))


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
        answer = verdict(UniqueFeature(), pa.Table.from_pylist([first, *ranked], SUMMARY)).answer
        answers.append((answer, ranked[0]["estimate"] > 0))
    return answers


def test_the_canaries_called_and_those_beyond_chance_are_counted() -> None:
    p_values = [1 / 201] * 3 + [0.04] + [0.5] * 16
    found = by_name(counted(p_values))
    called = found[CALLED, '{"false discovery rate": 0.05, "others": 200}']
    assert pytest.approx([3 / 20, None, None, 20, "canary", 0.0, 20 / 201 / 3, None]) == called
    share = found[BEYOND, '{"p": 0.05}']
    assert pytest.approx(share[0]) == (0.2 - 0.05) / 0.95
    assert 0 < share[1] < share[0] < share[2] < 1
    assert (share_beyond_chance(0, 20).value, share_beyond_chance(0, 20).low) == (0.0, 0.0)


def test_where_nothing_is_remembered_a_run_accuses_in_at_most_seven_and_a_half_percent() -> None:
    found = answered(np.random.default_rng(20), 0, 12, 400)
    assert sum(answer == "memorised" for answer, _ in found) / 400 <= 0.075 + 0.02
    assert sum(called for _, called in found) / 400 <= 0.05 + 0.02


def test_a_minority_is_found_in_eight_of_ten_runs_and_never_said_to_be_not_seen() -> None:
    found = answered(np.random.default_rng(21), 6, 20, 200)
    assert sum(called for _, called in found) / 200 >= 0.8
    assert not any(answer == "not detected" and called for answer, called in found)


def test_a_minority_too_small_to_be_called_is_never_said_to_be_not_seen() -> None:
    found = answered(np.random.default_rng(24), 9, 100, 50)
    assert not any(answer == "not detected" for answer, _ in found)


def test_among_few_others_those_that_are_first_are_counted() -> None:
    # Of 11 members none has p below 1/11: 12 firsts of 40 are far more than the 3.6 that chance brings.
    found = by_name(counted([1 / 11] * 12 + [0.5] * 28, 11))
    share = found[BEYOND, json.dumps({"p": 1 / 11})]
    assert pytest.approx(share[0]) == (12 / 40 - 1 / 11) / (10 / 11)
    assert share[6] < 0.001


def test_of_the_called_canaries_at_most_a_twentieth_is_called_wrongly() -> None:
    rng = np.random.default_rng(22)
    wrong = []
    for _ in range(400):
        p_values = drawn(rng, 10, 20, 3.0, FAMILY)
        found = call_canaries(ranked_canaries(p_values), [])
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
    assert sum(answer == "not detected" for answer, _ in found) / 400 >= 0.7


def test_exact_ranks_find_one_of_a_hundred_in_nine_of_ten_runs() -> None:
    found, missed = (answered(np.random.default_rng(26), 1, 100, 200, 5.0, among) for among in (EVERY_GLYPH, FAMILY))
    assert sum(called for _, called in found) / 200 >= 0.9
    assert sum(called for _, called in missed) / 200 <= 0.05
