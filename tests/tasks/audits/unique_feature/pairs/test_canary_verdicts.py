"""Calls of single canaries by the rank of their feature, and the rate of false calls."""

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


def test_canary_has_rank_and_shift_of_its_difference() -> None:
    control = np.zeros((5, 2))
    models = [control.copy(), control.copy()]
    models[0][:, 1] = [0.5, 0.1, 0.2, 0.6, -0.1]
    models[1][:, 1] = [0.9, 0.1, 0.2, 0.3, -0.2]
    tables = []
    for canary, model in enumerate(models):
        tables.append(family(canary, {"canary": model, "twin": control}, 1, canary))
    verdicts = canary_verdicts(NoSettings(), tables[::-1])
    assert verdicts.schema == CANARY_VERDICTS
    first, second = verdicts.to_pylist()
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


def test_seeds_of_a_canary_share_a_rank() -> None:
    single_pair = trained_family(3, 0.5)
    (pair_verdict,) = canary_verdicts(NoSettings(), [single_pair]).to_pylist()
    rank_by_estimator = {}
    for rank_row in family_rank_rows(single_pair):
        rank_by_estimator[(rank_row["estimator"], rank_row["model"])] = rank_row
    assert rank_by_estimator["paired family rank", "canary"]["p_value"] == pair_verdict["p_value"]
    tables = []
    for seed in range(3):
        tables.append(trained_family(3, 0.35).set_column(2, "seed", pa.array([seed] * 84)))
    (canary,) = canary_verdicts(NoSettings(), tables).to_pylist()
    assert canary["pairs"] == 3
    assert canary["members"] == 41


def test_incomplete_pairs_have_no_verdict() -> None:
    canary_only = trained_family(1, 9.0).filter(pa.compute.field("model") == "canary")
    verdicts = canary_verdicts(NoSettings(), [canary_only])
    assert verdicts.num_rows == 0
    assert list(rows(Tables([verdicts]), None)) == []


def test_canaries_of_one_seed_have_no_interval() -> None:
    tables = [trained_family(canary, 9.0) for canary in range(3)]
    shared = [table.set_column(2, "seed", pa.array([7] * 84)) for table in tables]
    separate_verdicts = canary_verdicts(NoSettings(), tables)
    shared_verdicts = canary_verdicts(NoSettings(), shared)
    assert not separate_verdicts["shared_seeds"][0].as_py()
    assert shared_verdicts["shared_seeds"][0].as_py()
    for (metric, setting), (_, low, high, *_, p_value, _) in by_name(rows(Tables([shared_verdicts]), None)).items():
        if metric == TIED:
            continue
        assert (json.loads(setting)[SHARED], low, high, p_value) == (True, None, None, None), metric
    with_p = {
        metric for (metric, _), (*_, p_value, _) in by_name(rows(Tables([separate_verdicts]), None)).items() if p_value
    }
    assert with_p == {CALLED, BEYOND, MEMORISED_BEYOND, TOTAL_BETS, MEMORISED_BETS}


def test_canaries_need_a_family() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=2, family=Family("letters", count=25))
    assert load_design(config).has_family
    assert len(plan(load_design(config), trainings(config))) == 1
    glyph = replace(config, feature=Glyph(kind="random", seed=3))  # letters have no family
    assert not load_design(glyph).has_family
    assert plan(load_design(glyph), trainings(glyph)) == ()


ALL_GLYPHS = 4_457_400


def ranked_canary(
    canary: int, shift: float, seed: int | None = None, score: str = "pair", feature: str = "canary"
) -> Row:
    """A canary with the letter A, with noise as the slopes of its cells plus the shift at its ink."""
    ink = inked_cells(Glyph())
    slopes = np.random.default_rng([canary, seed or 0]).normal(size=25) + shift * ink
    about = {"canary": canary, "label": 3, "seed": canary if seed is None else seed, "score": score, "feature": feature}
    return dict.fromkeys(EXACT_RANKS.names) | about | {"inked": 14, "ink": ink.tolist(), "slopes": slopes.tolist()}


def verdicts_of(*rows: Row) -> pa.Table:
    tables = [pa.Table.from_pylist([row], EXACT_RANKS) for row in rows]
    return exact_verdicts(NoSettings(), tables[::-1])


def test_canary_has_its_rank_among_all_glyphs() -> None:
    verdicts = verdicts_of(
        ranked_canary(1, 20.0),
        ranked_canary(2, 0.0),
        ranked_canary(2, 20.0, score="references"),
        ranked_canary(2, 20.0, feature="other"),
    )
    assert verdicts.schema == EXACT_VERDICTS
    first, second = verdicts.to_pylist()
    expected = (1, 3, 1, 14, 14, 1, ALL_GLYPHS, 1 / ALL_GLYPHS, True)
    names = ("canary", "label", "pairs", "read_out", "inked", "rank", "glyphs", "p_value", "called")
    assert expected == tuple(first[name] for name in names)
    assert math.log2(ALL_GLYPHS) == pytest.approx(first["exposure"])
    assert (second["canary"], second["called"]) == (2, False)
    assert 0.05 < second["p_value"] <= 1


def test_exact_seeds_of_a_canary_share_a_rank() -> None:
    weak_canaries = [ranked_canary(1, 0.7, seed) for seed in range(9)]
    (joint_verdict,) = verdicts_of(*weak_canaries).to_pylist()
    single_p_values = [verdicts_of(row).to_pylist()[0]["p_value"] for row in weak_canaries]
    assert joint_verdict["pairs"] == 9
    assert joint_verdict["p_value"] < np.median(single_p_values)


def test_summary_states_the_number_of_glyphs() -> None:
    for shared in (False, True):
        table = verdicts_of(*(ranked_canary(canary, 20.0, 7 if shared else None) for canary in range(3)))
        setting = {"false discovery rate": 0.05, GLYPHS: ALL_GLYPHS} | ({SHARED: True} if shared else {})
        summary_rows = by_name(exact_rows(Tables([table]), None))
        share, *_, n, unit, _, p_value, _ = summary_rows[CALLED, json.dumps(setting, sort_keys=True)]
        assert share == 1.0
        assert n == 3
        assert unit == "canary"
        assert (None if shared else pytest.approx(1 / ALL_GLYPHS)) == p_value


def test_no_exact_ranks_give_no_rows() -> None:
    assert list(exact_rows(Tables([verdicts_of()]), None)) == []


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
def test_exact_ranks_decide_if_all_glyphs_are_countable(changes: dict[str, object], exact: bool) -> None:
    data = {"data": pin(Dataset("digits")), "probe": pin(Dataset("photos"))}
    config: UniqueFeature = with_settings(PRESETS["smoke"], {**data, **changes})  # type: ignore[assignment]
    planned_trainings = trainings(config)
    has_jobs = []
    for plan_function in (plan_exact, plan):
        has_jobs.append(bool(plan_function(load_design(config), planned_trainings)))
    assert [exact, not exact] == has_jobs


# numbers of members in the comparison
FAMILY = 201
EVERY_GLYPH = 4_457_400


def ranked_canaries(p_values: Iterable[float]) -> list[Row]:
    """Canaries with these p-values and effects far larger than the smallest relevant one."""
    canaries = []
    for canary, p in enumerate(p_values):
        canaries.append({"canary": canary, "p_value": p, "reduced_p": p, "tied": 0.0})
    return canaries


def count_table(p_values: Iterable[float], population_size: int = FAMILY) -> list[Row]:
    """The rows of the summary for canaries with these p-values, each with a different training seed."""
    called_rows = call_canaries(ranked_canaries(p_values), [])
    return list(count_rows(called_rows, Population(population_size, population_size == EVERY_GLYPH)))


def draw_p_values(
    rng: np.random.Generator, memorised_count: int, canaries: int, shift: float, population_size: int
) -> np.ndarray:
    """p-values of ranks: of canaries without memory, and of memorised canaries with a feature `shift` sds above.

    The compared features have normal scores; for all glyphs, the shares follow the normal distribution.
    """
    scores = rng.normal(0, 1, canaries)
    scores[:memorised_count] += shift
    if population_size == EVERY_GLYPH:
        return np.ceil(stats.norm.sf(scores) * population_size).clip(1) / population_size
    other_scores = rng.normal(0, 1, (canaries, population_size - 1))
    return np.asarray((1 + (other_scores >= scores[:, None]).sum(axis=1)) / population_size)


def answers_of(
    rng: np.random.Generator,
    memorised_count: int,
    canaries: int,
    draws: int,
    shift: float = 3.0,
    population_size: int = FAMILY,
) -> list[tuple[str, bool]]:
    """The answers for runs in which only memorised canaries have effects, and whether any canary was called."""
    answers = []
    for _ in range(draws):
        effects = rng.normal(0, 0.1, canaries)
        effects[:memorised_count] += 0.3
        effect_summary = row("M_w effect", {"images": "probe"}, mean(effects), "pair of trainings", 0.0)
        rank_summary = count_table(
            draw_p_values(rng, memorised_count, canaries, shift, population_size), population_size
        )
        answer = verdict(UniqueFeature(), pa.Table.from_pylist([effect_summary, *rank_summary], SUMMARY)).answer
        answers.append((answer, rank_summary[0]["estimate"] > 0))
    return answers


def test_called_canaries_and_excess_are_counted() -> None:
    p_values = [1 / 201] * 3 + [0.04] + [0.5] * 16
    summary_rows = by_name(count_table(p_values))
    call_rate = summary_rows[CALLED, '{"false discovery rate": 0.05, "others": 200}']
    assert call_rate == pytest.approx([3 / 20, None, None, 20, "canary", 0.0, 20 / 201 / 3, None])
    share = summary_rows[BEYOND, '{"p": 0.05}']
    assert pytest.approx(share[0]) == (0.2 - 0.05) / 0.95
    assert 0 < share[1] < share[0] < share[2] < 1
    assert share_beyond_chance(0, 20).value == 0.0
    assert share_beyond_chance(0, 20).low == 0.0


def test_runs_without_memory_accuse_at_stated_rate() -> None:
    answers = answers_of(np.random.default_rng(20), 0, 12, 400)
    assert sum(answer == "memorised" for answer, _ in answers) / 400 <= 0.075 + 0.02
    assert sum(is_called for _, is_called in answers) / 400 <= 0.05 + 0.02


def test_minority_is_found_in_most_runs() -> None:
    answers = answers_of(np.random.default_rng(21), 6, 20, 200)
    assert sum(is_called for _, is_called in answers) / 200 >= 0.8
    assert not any(answer == "not detected" and is_called for answer, is_called in answers)


def test_small_minority_is_never_not_detected() -> None:
    answers = answers_of(np.random.default_rng(24), 9, 100, 50)
    assert not any(answer == "not detected" for answer, _ in answers)


def test_first_ranks_are_counted_in_small_families() -> None:
    # No p-value of 11 members is below 1/11: 12 first ranks of 40 are far more than the expected 3.6.
    summary_rows = by_name(count_table([1 / 11] * 12 + [0.5] * 28, 11))
    share = summary_rows[BEYOND, json.dumps({"p": 1 / 11})]
    assert pytest.approx(share[0]) == (12 / 40 - 1 / 11) / (10 / 11)
    assert share[6] < 0.001


def test_false_calls_are_at_most_a_twentieth() -> None:
    rng = np.random.default_rng(22)
    false_shares = []
    for _ in range(400):
        p_values = draw_p_values(rng, 10, 20, 3.0, FAMILY)
        called_rows = call_canaries(ranked_canaries(p_values), [])
        is_called = np.array(
            [
                row_of_canary["called"]
                for row_of_canary in sorted(called_rows, key=lambda row_of_canary: int(row_of_canary["canary"]))
            ]
        )
        false_shares.append(is_called[10:].sum() / max(1, is_called.sum()))
    assert np.mean(false_shares) <= 0.05


@pytest.mark.parametrize(("memorised_count", "shift"), [(0, 0.0), (20, 9.0)])
def test_excess_interval_covers_the_memorised_share(memorised_count: int, shift: float) -> None:
    rng = np.random.default_rng(23)
    covered = 0
    for _ in range(300):
        excess = share_beyond_chance(int((draw_p_values(rng, memorised_count, 40, shift, FAMILY) <= 0.05).sum()), 40)
        assert excess.low is not None
        assert excess.high is not None
        covered += excess.low <= memorised_count / 40 <= excess.high
    assert covered / 300 >= 0.9


@pytest.mark.parametrize("canaries", [12, 100])
def test_exact_ranks_accuse_rarely_and_can_clear(canaries: int) -> None:
    answers = answers_of(np.random.default_rng(25), 0, canaries, 400, population_size=EVERY_GLYPH)
    assert sum(answer == "memorised" for answer, _ in answers) / 400 <= 0.076 + 0.02
    assert sum(is_called for _, is_called in answers) / 400 <= 0.05 + 0.02
    assert sum(answer == "not detected" for answer, _ in answers) / 400 >= 0.7


def test_exact_ranks_detect_one_of_a_hundred() -> None:
    with_all_glyphs = answers_of(np.random.default_rng(26), 1, 100, 200, 5.0, EVERY_GLYPH)
    with_family = answers_of(np.random.default_rng(26), 1, 100, 200, 5.0, FAMILY)
    assert sum(is_called for _, is_called in with_all_glyphs) / 200 >= 0.9
    assert sum(is_called for _, is_called in with_family) / 200 <= 0.05
