"""Answers of pairs of trainings: deciding rows, sentences and limits."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.unique_feature import AUDIT, UniqueFeature
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.given_models import Given
from tasks.audits.unique_feature.pairs.answer import ANSWERING, RULES, thresholds
from tasks.audits.unique_feature.pairs.bets import BETS
from tasks.audits.unique_feature.pairs.canary_scores import EFFECT, LARGEST
from tasks.audits.unique_feature.pairs.canary_verdicts import (
    BEYOND,
    CALLED,
    MEMORISED,
    MEMORISED_BEYOND,
    SHARED,
)
from tasks.audits.unique_feature.pairs.private_ranks import ALLOWED, ONE_MODEL
from tasks.audits.unique_feature.pairs.sentences import (
    CHOSEN_GLYPH_LIMITS,
    CHOSEN_LIMITS,
    STOPPED_LIMITS,
    unit_name,
)
from tasks.audits.unique_feature.population import GLYPHS
from tasks.contract.certificate import Certificate
from tasks.contract.schemas import SUMMARY
from tasks.contract.ties import tied_row
from tasks.contract.verdict import Verdict
from tasks.datasets.features import Glyph
from tasks.datasets.features import describe_feature as name_of
from tests.support.golden import Golden
from tests.tasks.audits.unique_feature.made_up import configure

LETTER_A = Glyph()
GLYPH = Glyph(kind="random", seed=1)


def pair_verdict(summary: pa.Table, **config: Any) -> Verdict:
    return verdict(configure(config), summary)


def certificate_of(*row: Any) -> Certificate:
    page = AUDIT.certify("Is it?", UniqueFeature(), table(*row))
    assert page is not None
    return page


def table(estimate: float | None, low: float | None, high: float | None, n: int = 12, *other_rows: Any) -> pa.Table:
    row = dict.fromkeys(SUMMARY.names) | {"metric": EFFECT[0], "setting": EFFECT[1], "unit": "pair of trainings"}
    rows = [row | {"estimate": estimate, "low": low, "high": high, "n": n}, *other_rows]
    return pa.Table.from_pylist(rows, SUMMARY)


def call_rate_row(model: str, rate: float) -> dict[str, Any]:
    setting = json.dumps({"model": model, "test": "welch"})
    row = {"metric": "rate called memorised", "setting": setting, "estimate": rate, "n": 12}
    return dict.fromkeys(SUMMARY.names) | row


@pytest.mark.parametrize(
    ("estimate", "low", "high", "answer"),
    [
        (0.366, 0.193, 0.540, "memorised"),
        (0.021, -0.031, 0.073, "not detected"),
        (-0.05, -0.14, 0.04, "not detected"),
        # below the bound by chance: an effect at the bound would hardly have been detected
        (-0.2, -0.35, -0.05, "undecided"),
        (0.05, -0.1, 0.2, "undecided"),  # a relevant effect cannot be excluded
        (0.0, -0.2, 0.1, "undecided"),  # nor at the bound itself
        (0.05, 0.0, 0.1, "undecided"),
        (-0.02, -0.12, 0.08, "undecided"),  # half as wide as the bound
        (-0.01, -0.10, 0.08, "not detected"),
        (0.0, 0.0, 0.0, "not detected"),
        (0.00002, 0.00001, 0.00003, "below the relevant size"),
        (0.05, 0.01, 0.09, "below the relevant size"),
        (0.3, 0.1, 0.5, "undecided"),  # the effect may not exceed the smallest relevant one
        (0.3, 0.1001, 0.5, "memorised"),
    ],
)
def test_interval_decides_the_answer(golden: Golden, estimate: float, low: float, high: float, answer: str) -> None:
    outcome = pair_verdict(table(estimate, low, high, 12, *rank_rows(0.0, 12, 239, p_value=0.5)))
    assert answer == outcome.answer
    assert outcome.sentence.lower().startswith(answer)
    for number in (estimate, low, high):
        assert f"{number:.4g}" in outcome.sentence
    golden(outcome.sentence, "said.sentence")
    assert [metric for metric, _ in outcome.rows] == [EFFECT[0], CALLED, BEYOND]


def test_one_training_decides_nothing() -> None:
    for n in (1, 12):
        answer = pair_verdict(table(5.0, None, None, n))
        assert answer.answer == "undecided"
        assert "no interval" in answer.sentence


def test_ranks_are_reported_without_scores(golden: Golden) -> None:
    empty = table(None, None, None, 0)
    with_ranks = table(None, None, None, 0, *rank_rows(0.0, 12, p_value=0.5))
    golden(pair_verdict(empty).sentence, "sentence")
    answer = pair_verdict(with_ranks).sentence
    golden(answer, "said")
    without_beyond = pair_verdict(table(None, None, None, 0, *rank_rows(0.5, 12))).sentence
    assert without_beyond.startswith("Memorised: 6 of 12 canaries are found")


@pytest.mark.parametrize(("unit", "words"), [("training seed", "training seed"), ("pair", "pair of trainings")])
def test_single_unit_is_named(unit: str, words: str) -> None:
    (single_row,) = table(5.0, None, None, 1).to_pylist()
    answer = pair_verdict(pa.Table.from_pylist([single_row | {"unit": unit}], SUMMARY)).sentence
    assert f"one {words} has no interval" in answer


def test_number_of_calls_needed_is_reported() -> None:
    for n, is_reported in ((10, False), (12, True)):  # among 201: .05 of 10 canaries, and more than that for 12
        answer = pair_verdict(table(0.02, -0.03, 0.07, n, *rank_rows(0.0, n, p_value=0.5))).sentence
        assert is_reported == ("could not have been called" in answer)
    unknown, small = rank_rows(0.0, 12, large=False)
    for rows in ((unknown,), (unknown, small | {"p_value": None})):
        assert "that many small ranks" not in pair_verdict(table(0.02, -0.03, 0.07, 12, *rows)).sentence


def test_published_tests_false_alarms_are_reported(golden: Golden) -> None:
    answer = pair_verdict(table(0.4, 0.2, 0.6, 12, call_rate_row("canary", 0.25), call_rate_row("twin", 1 / 12)))
    golden(answer.published)
    assert "published" not in answer.limits


def test_control_run_is_named() -> None:
    assert "control experiment" in pair_verdict(table(0.0, -0.01, 0.02), burnt=GLYPH).sentence
    assert "control experiment" not in pair_verdict(table(0.0, -0.01, 0.02), feature=GLYPH).sentence


@pytest.mark.parametrize(
    ("evaluated", "carried", "drawn", "image", "probe"),
    [
        (LETTER_A, None, False, "the letter A", "the letter A"),
        (LETTER_A, GLYPH, False, "another feature", "the letter A"),
        (GLYPH, LETTER_A, False, "another feature", name_of(GLYPH)),
        (LETTER_A, None, True, "a feature drawn from the family of the letter A", "that feature"),
    ],
)
def test_burnt_and_evaluated_features_are_named(
    evaluated: Glyph, carried: Glyph | None, drawn: bool, image: str, probe: str
) -> None:
    answer = pair_verdict(table(0.4, 0.2, 0.6), feature=evaluated, burnt=carried, drawn=drawn).sentence
    assert answer.startswith(f"Memorised: a single training image with {image} makes its label ")
    assert f" on unseen images with {probe}, " in answer


def rank_rows(
    share: float, n: int, others: int = 200, p_value: float = 0.5, *, large: bool = True, **shared: bool
) -> list[dict[str, Any]]:
    setting = json.dumps({"false discovery rate": 0.05, "others": others} | shared)
    row = dict.fromkeys(SUMMARY.names) | {"metric": CALLED, "setting": setting, "estimate": share, "n": n}
    small = {"metric": BEYOND, "setting": '{"p": 0.05}', "estimate": 0.2, "low": 0.1, "high": 0.4, "n": n}
    decisive_rows = [row, dict.fromkeys(SUMMARY.names) | small | {"p_value": p_value}]
    relevant_rows = []
    for decisive_row, name in zip(decisive_rows, (MEMORISED, MEMORISED_BEYOND), strict=True):
        relevant_rows.append(decisive_row | {"metric": name})
    return [*decisive_rows, *relevant_rows] if large else decisive_rows


def test_called_minority_is_never_not_detected(golden: Golden) -> None:
    answer = pair_verdict(table(0.02, -0.03, 0.07, 20, *rank_rows(0.15, 20)))
    assert answer.answer == "memorised"
    assert "3 of 20 canaries are found individually, 3 of them above 0.1 nats" in answer.sentence
    golden(answer.sentence, "said.sentence")
    called_row, small, *_ = rank_rows(0.15, 20)
    at_another_level = table(0.02, -0.03, 0.07, 20, called_row, small | {"setting": '{"p": 0.01}'})
    golden(pair_verdict(at_another_level).sentence, "sentence")
    # the deciding row comes first
    assert [metric for metric, _ in answer.rows] == [CALLED, EFFECT[0], BEYOND]


def exact_rank_rows(share: float, n: int, p_value: float = 0.5) -> list[dict[str, Any]]:
    calls_row, small = rank_rows(share, n, p_value=p_value, large=False)
    largest = dict.fromkeys(SUMMARY.names) | {"metric": LARGEST, "setting": EFFECT[1], "estimate": 0.5, "n": n}
    return [calls_row | {"setting": json.dumps({"false discovery rate": 0.05, GLYPHS: 4457400})}, small, largest]


def test_exact_ranks_name_all_glyphs_and_can_clear() -> None:
    answer = pair_verdict(table(0.02, -0.03, 0.07, 100, *exact_rank_rows(0.01, 100)))
    assert answer.answer == "memorised"
    assert "1 of 100 canaries is found individually (rank among all 4,457,400 glyphs" in answer.sentence
    assert (CHOSEN_GLYPH_LIMITS in answer.limits, CHOSEN_LIMITS in answer.limits) == (True, False)
    cleared_answer = pair_verdict(table(0.02, -0.03, 0.07, 100, *exact_rank_rows(0.0, 100)), drawn=True)
    assert (cleared_answer.answer, CHOSEN_GLYPH_LIMITS in cleared_answer.limits) == ("not detected", False)


def test_ranks_alone_accuse_but_never_clear(golden: Golden) -> None:
    accused = pair_verdict(pa.Table.from_pylist(exact_rank_rows(0.5, 20), SUMMARY))
    cleared = pair_verdict(pa.Table.from_pylist(exact_rank_rows(0.0, 20), SUMMARY))
    golden(accused.sentence)
    assert cleared.answer == "undecided"


def test_ranks_of_shared_seeds_decide_nothing(golden: Golden) -> None:
    shared = rank_rows(0.9, 10, p_value=1e-9, **{SHARED: True})
    answer = pair_verdict(table(0.02, -0.03, 0.07, 10, *shared))
    assert answer.answer == "undecided"
    golden(answer.sentence)


def test_chosen_feature_limits_the_level_of_ranks() -> None:
    rows = table(0.4, 0.2, 0.6, 12, *rank_rows(0.5, 12))
    assert CHOSEN_LIMITS in pair_verdict(rows, drawn=False).limits
    assert CHOSEN_LIMITS not in pair_verdict(rows, drawn=True).limits


def test_missing_ranks_clear_no_canary(golden: Golden) -> None:
    for rows in ((), rank_rows(0.0, 0)):
        answer = pair_verdict(table(0.02, -0.03, 0.07, 12, *rows))
        assert answer.answer == "undecided"
        golden(answer.sentence)


@pytest.mark.parametrize(
    ("unit", "n", "expected"),
    [
        ("pair of trainings", 1, "pair of trainings"),
        ("pair of trainings", 2, "pairs of trainings"),
        ("canary", 3, "canaries"),
        ("canary", 1, "canary"),
        ("training", 5, "trainings"),
    ],
)
def test_units_have_singular_and_plural(unit: str, n: int, expected: str) -> None:
    assert expected == unit_name(unit, n)


def test_published_calls_need_both_kinds_of_models() -> None:
    canary_only = pair_verdict(table(0.4, 0.2, 0.6, 12, call_rate_row("canary", 0.25)))
    unknown = pair_verdict(
        table(0.4, 0.2, 0.6, 12, call_rate_row("canary", 0.25), call_rate_row("twin", 0.0) | {"n": 0})
    )
    assert not bool(canary_only.published)
    assert not bool(unknown.published)


def test_privacy_limit_is_compared_with_the_result(golden: Golden) -> None:
    empty = dict.fromkeys(SUMMARY.names) | {"unit": "training", "n": 16}
    setting = json.dumps({"delta": 1e-5, "epsilon": 1.0, "level": 0.05})
    smaller = json.dumps({"delta": 1e-5, "epsilon": 1.0, "level": 0.01})
    privacy_rows = []
    for metric, row_setting, estimate in (
        (ONE_MODEL, setting, 0.125),
        (ALLOWED, setting, 0.13592),
        (ONE_MODEL, smaller, 0.0),
        (ALLOWED, smaller, 0.0272),
    ):
        privacy_rows.append(empty | {"metric": metric, "setting": row_setting, "estimate": estimate})
    answer = pair_verdict(table(0.4, 0.2, 0.6, 16, *privacy_rows), feature=GLYPH, drawn=True)
    assert answer.answer == "memorised"
    golden(answer.limits)
    for fewer_rows in ([], privacy_rows[:1], privacy_rows[1:2]):
        assert "private" not in pair_verdict(table(0.4, 0.2, 0.6, 16, *fewer_rows), feature=GLYPH, drawn=True).limits


# For readers without a machine-learning background


def test_certificate_of_control_run_expects_no_finding(golden: Golden) -> None:
    config = configure(burnt=GLYPH)
    page = AUDIT.certify("Is it?", config, table(0.2, 0.11, 0.3))
    assert page is not None
    answer = page.findings[0].sentence
    golden(answer, "said")
    golden(page.steps[0], "found.steps[0]")
    assert "run the actual audit (`burnt=null`)." in page.steps[1]


def test_effect_without_interval_is_reported(golden: Golden) -> None:
    (finding,) = certificate_of(0.3656, None, None, 1).findings
    golden(finding.sentence, "finding.sentence")
    golden(certificate_of(0.5, -12.0, 13.0, 2).findings[0].sentence, "sentence")
    golden(certificate_of(0.5, -900.0, 901.0, 3).findings[0].sentence, "sentence")


EARLY_STOPPING = {"canaries": 12, "drawn": True, "stopping_level": 0.05}


def bet_row(largest: float, n: int) -> dict[str, Any]:
    row = dict.fromkeys(SUMMARY.names) | {"metric": BETS, "setting": json.dumps({"level": 0.05, "others": 200})}
    return row | {"estimate": largest, "n": n, "unit": "pair of trainings", "null": 1.0, "p_value": 1 / largest}


def test_only_bets_accuse_a_run_with_early_stopping(golden: Golden) -> None:
    strong = (0.366, 0.193, 0.540, 12, *rank_rows(0.5, 12, 239, p_value=1e-6))
    assert pair_verdict(table(*strong)).answer == "memorised"
    for bet_rows in ((), (bet_row(19.9, 12),)):
        assert pair_verdict(table(*strong, *bet_rows), **EARLY_STOPPING).answer == "undecided"
    answer = pair_verdict(table(0.3, 0.2, 0.4, 3, bet_row(20.5, 3)), **EARLY_STOPPING)
    assert answer.answer == "memorised"
    assert answer.rows[0][0] == BETS
    golden(answer.sentence)
    assert "an answer needs at least" not in answer.sentence
    golden(answer.limits, "said.limits")


@pytest.mark.parametrize(
    "interval",
    [
        (0.3, 0.2, 0.4, 6),
        (0.3, 0.2, 0.4, 5),
        (0.0, -0.2, 0.1, 12),
        (-0.2, -0.35, -0.05, 12),
        (0.0, -0.05, 0.05, 12),
        (0.3, 0.2, 0.4, 3, bet_row(19.0, 3)),
        (0.3, 0.2, 0.4, 3, bet_row(20.0, 3)),
    ],
)
def test_effect_alone_has_its_consequence(golden: Golden, interval: tuple[Any, ...]) -> None:
    until = EARLY_STOPPING if len(interval) > 4 else {}
    golden(pair_verdict(table(*interval), **until).sentence)


def tied_scores_row(share: float) -> dict[str, Any]:
    return tied_row(share, 10, "canary")


@pytest.mark.parametrize(
    ("ranks", "answer"),
    [
        (rank_rows(0.0, 10), "not detected"),
        (rank_rows(0.1, 10), "memorised"),
        (rank_rows(0.1, 10, large=False), "below the relevant size"),
        ([*rank_rows(0.0, 10), tied_scores_row(0.051)], "not assessable"),
        ([*rank_rows(0.1, 10), tied_scores_row(0.051)], "memorised"),
        (rank_rows(0.0, 12), "undecided"),
        (rank_rows(0.0, 12, 10), "undecided"),
        (rank_rows(0.0, 2, 20), "undecided"),
        (exact_rank_rows(0.0, 300_000), "undecided"),
        (rank_rows(0.0, 10, p_value=0.05), "undecided"),
        (rank_rows(0.0, 10, p_value=0.001), "memorised"),
    ],
)
def test_ranks_alone_have_their_consequence(golden: Golden, ranks: list[dict[str, Any]], answer: str) -> None:
    outcome = pair_verdict(table(0.02, -0.03, 0.07, 12, *ranks))
    assert outcome.answer == answer
    golden(outcome.sentence)
    unknown = [ranks[0], ranks[1] | {"estimate": None, "low": None}]
    assert "found beyond chance" not in pair_verdict(table(0.02, -0.03, 0.07, 12, *unknown)).sentence


def test_rules_of_pairs_state_their_errors(golden: Golden) -> None:
    configs = (UniqueFeature(), configure(EARLY_STOPPING))
    assert [len([*RULES.applicable_cases(config)]) for config in configs] == [8, 5]
    assert [ANSWERING.applies(config) for config in (*configs, UniqueFeature(Given((28, 28, 1))))] == [
        True,
        True,
        False,
    ]
    page = certificate_of(0.3, 0.2, 0.4)
    golden(page.rule, "page.rule")
    golden(page.error, "page.error")
    golden(page.other_errors, "page.other_errors")
    golden(page.examined, "page.examined")


def test_only_stopped_run_is_described_as_stopped() -> None:
    limits_of_runs = []
    for evidence in (19.0, 20.0):
        limits_of_runs.append(pair_verdict(table(0.3, 0.2, 0.4, 12, bet_row(evidence, 12)), **EARLY_STOPPING).limits)
    assert [STOPPED_LIMITS in limits for limits in limits_of_runs] == [False, True]
    thresholds_by_level = []
    for level in (0.01, 0):
        thresholds_by_level.append(thresholds(configure(EARLY_STOPPING | {"stopping_level": level})))
    assert [
        (thresholds_of_level["bets"], thresholds_of_level["bet_alarms"]) for thresholds_of_level in thresholds_by_level
    ] == [("100", "1"), ("20", "5")]


def test_clearing_needs_all_planned_pairs(golden: Golden) -> None:
    cleared_table = (0.0, -0.01, 0.01, 12, *rank_rows(0.0, 12, 239, p_value=0.5))
    answer = pair_verdict(table(*cleared_table, bet_row(3.0, 12)), **EARLY_STOPPING)
    assert answer.answer == "not detected"
    golden(answer.sentence)


def test_certificate_of_stopped_run_shows_its_evidence(golden: Golden) -> None:
    page = AUDIT.certify("Is it?", configure(EARLY_STOPPING), table(0.3, 0.2, 0.4, 3, bet_row(53.0, 3)))
    assert page is not None
    (finding,) = page.findings
    assert finding.line is not None
    assert finding.line.estimate == 53.0
    assert finding.line.null == 1.0
    assert finding.line.boundaries[0].value == 20.0
    golden(page.error)
