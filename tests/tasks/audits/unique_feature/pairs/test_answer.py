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

A = Glyph()
GLYPH = Glyph(kind="random", seed=1)


def pair_verdict(summary: pa.Table, **config: Any) -> Verdict:
    return verdict(configure(config), summary)


def of_pairs(*row: Any) -> Certificate:
    found = AUDIT.certify("Is it?", UniqueFeature(), table(*row))
    assert found is not None
    return found


def table(estimate: float | None, low: float | None, high: float | None, n: int = 12, *more: Any) -> pa.Table:
    row = dict.fromkeys(SUMMARY.names) | {"metric": EFFECT[0], "setting": EFFECT[1], "unit": "pair of trainings"}
    rows = [row | {"estimate": estimate, "low": low, "high": high, "n": n}, *more]
    return pa.Table.from_pylist(rows, SUMMARY)


def called(model: str, rate: float) -> dict[str, Any]:
    setting = json.dumps({"model": model, "test": "welch"})
    row = {"metric": "rate called memorised", "setting": setting, "estimate": rate, "n": 12}
    return dict.fromkeys(SUMMARY.names) | row


@pytest.mark.parametrize(
    ("estimate", "low", "high", "answer"),
    [
        (0.366, 0.193, 0.540, "memorised"),
        (0.021, -0.031, 0.073, "not detected"),
        (-0.05, -0.14, 0.04, "not detected"),
        (-0.2, -0.35, -0.05, "undecided"),  # below the bound by chance: an effect at it would hardly have shown
        (0.05, -0.1, 0.2, "undecided"),  # an effect that would matter cannot be excluded
        (0.0, -0.2, 0.1, "undecided"),  # nor at the bound itself
        (0.05, 0.0, 0.1, "undecided"),
        (-0.02, -0.12, 0.08, "undecided"),  # half as wide as the bound
        (-0.01, -0.10, 0.08, "not detected"),
        (0.0, 0.0, 0.0, "not detected"),
        (0.00002, 0.00001, 0.00003, "below the relevant size"),
        (0.05, 0.01, 0.09, "below the relevant size"),
        (0.3, 0.1, 0.5, "undecided"),  # it may be no larger than the smallest relevant one
        (0.3, 0.1001, 0.5, "memorised"),
    ],
)
def test_the_interval_decides(golden: Golden, estimate: float, low: float, high: float, answer: str) -> None:
    said = pair_verdict(table(estimate, low, high, 12, *calls(0.0, 12, 239, p_value=0.5)))
    assert answer == said.answer
    assert said.sentence.lower().startswith(answer)
    for number in (estimate, low, high):
        assert f"{number:.4g}" in said.sentence
    golden(said.sentence, "said.sentence")
    assert [EFFECT[0], CALLED, BEYOND] == [metric for metric, _ in said.rows]


def test_one_training_has_no_interval_and_decides_nothing() -> None:
    for n in (1, 12):
        said = pair_verdict(table(5.0, None, None, n))
        assert said.answer == "undecided"
        assert "no interval" in said.sentence


def test_without_scores_ranks_are_told_beside_their_lack(golden: Golden) -> None:
    nothing = table(None, None, None, 0)
    ranked = table(None, None, None, 0, *calls(0.0, 12, p_value=0.5))
    golden(pair_verdict(nothing).sentence, "sentence")
    said = pair_verdict(ranked).sentence
    golden(said, "said")
    called_alone = pair_verdict(table(None, None, None, 0, *calls(0.5, 12))).sentence
    assert called_alone.startswith("Memorised: 6 of 12 canaries are found")


@pytest.mark.parametrize(("unit", "words"), [("training seed", "training seed"), ("pair", "pair of trainings")])
def test_what_is_alone_is_named(unit: str, words: str) -> None:
    (only,) = table(5.0, None, None, 1).to_pylist()
    said = pair_verdict(pa.Table.from_pylist([only | {"unit": unit}], SUMMARY)).sentence
    assert f"one {words} has no interval" in said


def test_how_many_must_be_called_together_is_told_where_one_could_not_be() -> None:
    for n, told in ((10, False), (12, True)):  # among 201: .05 of 10 places, and more than that of 12
        said = pair_verdict(table(0.02, -0.03, 0.07, n, *calls(0.0, n, p_value=0.5))).sentence
        assert told == ("could not have been called" in said)
    unknown, small = calls(0.0, 12, large=False)
    for rows in ((unknown,), (unknown, small | {"p_value": None})):
        assert "that many small ranks" not in pair_verdict(table(0.02, -0.03, 0.07, 12, *rows)).sentence


def test_it_says_how_often_the_published_test_accuses_the_innocent(golden: Golden) -> None:
    said = pair_verdict(table(0.4, 0.2, 0.6, 12, called("canary", 0.25), called("twin", 1 / 12)))
    golden(said.published)
    assert "published" not in said.limits


def test_a_null_run_says_that_it_is_one() -> None:
    assert "control experiment" in pair_verdict(table(0.0, -0.01, 0.02), burnt=GLYPH).sentence
    assert "control experiment" not in pair_verdict(table(0.0, -0.01, 0.02), feature=GLYPH).sentence


@pytest.mark.parametrize(
    ("asked", "carried", "drawn", "image", "probe"),
    [
        (A, None, False, "the letter A", "the letter A"),
        (A, GLYPH, False, "another feature", "the letter A"),
        (GLYPH, A, False, "another feature", name_of(GLYPH)),
        (A, None, True, "a feature drawn from the family of the letter A", "that feature"),
    ],
)
def test_it_names_the_feature_that_was_in_the_image_and_the_one_asked_about(
    asked: Glyph, carried: Glyph | None, drawn: bool, image: str, probe: str
) -> None:
    said = pair_verdict(table(0.4, 0.2, 0.6), feature=asked, burnt=carried, drawn=drawn).sentence
    assert said.startswith(f"Memorised: a single training image with {image} makes its label ")
    assert f" on unseen images with {probe}, " in said


def calls(
    share: float, n: int, others: int = 200, p_value: float = 0.5, *, large: bool = True, **shared: bool
) -> list[dict[str, Any]]:
    setting = json.dumps({"false discovery rate": 0.05, "others": others} | shared)
    row = dict.fromkeys(SUMMARY.names) | {"metric": CALLED, "setting": setting, "estimate": share, "n": n}
    small = {"metric": BEYOND, "setting": '{"p": 0.05}', "estimate": 0.2, "low": 0.1, "high": 0.4, "n": n}
    found = [row, dict.fromkeys(SUMMARY.names) | small | {"p_value": p_value}]
    sized = [each | {"metric": name} for each, name in zip(found, (MEMORISED, MEMORISED_BEYOND), strict=True)]
    return [*found, *sized] if large else found


def test_a_minority_that_is_called_is_never_said_to_be_not_seen(golden: Golden) -> None:
    said = pair_verdict(table(0.02, -0.03, 0.07, 20, *calls(0.15, 20)))
    assert said.answer == "memorised"
    assert "3 of 20 canaries are found individually, 3 of them above 0.1 nats" in said.sentence
    golden(said.sentence, "said.sentence")
    one, small, *_ = calls(0.15, 20)
    at_another_level = table(0.02, -0.03, 0.07, 20, one, small | {"setting": '{"p": 0.01}'})
    golden(pair_verdict(at_another_level).sentence, "sentence")
    assert [CALLED, EFFECT[0], BEYOND] == [metric for metric, _ in said.rows]  # what decided comes first


def exactly(share: float, n: int, p_value: float = 0.5) -> list[dict[str, Any]]:
    called, small = calls(share, n, p_value=p_value, large=False)
    largest = dict.fromkeys(SUMMARY.names) | {"metric": LARGEST, "setting": EFFECT[1], "estimate": 0.5, "n": n}
    return [called | {"setting": json.dumps({"false discovery rate": 0.05, GLYPHS: 4457400})}, small, largest]


def test_exact_ranks_say_among_how_many_glyphs_and_clear_a_hundred_canaries() -> None:
    said = pair_verdict(table(0.02, -0.03, 0.07, 100, *exactly(0.01, 100)))
    assert said.answer == "memorised"
    assert "1 of 100 canaries is found individually (rank among all 4,457,400 glyphs" in said.sentence
    assert (CHOSEN_GLYPH_LIMITS in said.limits, CHOSEN_LIMITS in said.limits) == (True, False)
    clear = pair_verdict(table(0.02, -0.03, 0.07, 100, *exactly(0.0, 100)), drawn=True)
    assert (clear.answer, CHOSEN_GLYPH_LIMITS in clear.limits) == ("not detected", False)


def test_ranks_alone_can_accuse_and_cannot_clear(golden: Golden) -> None:
    called, cleared = (pair_verdict(pa.Table.from_pylist(exactly(share, 20), SUMMARY)) for share in (0.5, 0.0))
    golden(called.sentence)
    assert cleared.answer == "undecided"


def test_the_ranks_of_canaries_that_share_training_seeds_decide_nothing(golden: Golden) -> None:
    shared = calls(0.9, 10, p_value=1e-9, **{SHARED: True})
    said = pair_verdict(table(0.02, -0.03, 0.07, 10, *shared))
    assert said.answer == "undecided"
    golden(said.sentence)


def test_it_says_where_the_level_of_ranks_rests_on_a_choice() -> None:
    rows = table(0.4, 0.2, 0.6, 12, *calls(0.5, 12))
    assert [CHOSEN_LIMITS in pair_verdict(rows, drawn=drawn).limits for drawn in (False, True)] == [True, False]


def test_without_ranks_no_canary_is_cleared_and_the_answer_says_why(golden: Golden) -> None:
    for rows in ((), calls(0.0, 0)):
        said = pair_verdict(table(0.02, -0.03, 0.07, 12, *rows))
        assert said.answer == "undecided"
        golden(said.sentence)


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
def test_units_are_counted_in_words(unit: str, n: int, expected: str) -> None:
    assert expected == unit_name(unit, n)


def test_what_the_published_test_calls_is_told_of_both_kinds_of_models_or_of_none() -> None:
    alone = pair_verdict(table(0.4, 0.2, 0.6, 12, called("canary", 0.25)))
    unknown = pair_verdict(table(0.4, 0.2, 0.6, 12, called("canary", 0.25), called("twin", 0.0) | {"n": 0}))
    assert [bool(said.published) for said in (alone, unknown)] == [False, False]


def test_what_privacy_allows_one_model_stands_beside_what_it_found(golden: Golden) -> None:
    empty = dict.fromkeys(SUMMARY.names) | {"unit": "training", "n": 16}
    setting = json.dumps({"delta": 1e-5, "epsilon": 1.0, "level": 0.05})
    smaller = json.dumps({"delta": 1e-5, "epsilon": 1.0, "level": 0.01})
    more = [
        empty | {"metric": metric, "setting": of, "estimate": estimate}
        for metric, of, estimate in (
            (ONE_MODEL, setting, 0.125),
            (ALLOWED, setting, 0.13592),
            (ONE_MODEL, smaller, 0.0),
            (ALLOWED, smaller, 0.0272),
        )
    ]
    said = pair_verdict(table(0.4, 0.2, 0.6, 16, *more), feature=GLYPH, drawn=True)
    assert said.answer == "memorised"
    golden(said.limits)
    for less in ([], more[:1], more[1:2]):
        assert "private" not in pair_verdict(table(0.4, 0.2, 0.6, 16, *less), feature=GLYPH, drawn=True).limits


# For somebody who knows no machine learning


def test_of_a_null_it_says_that_nothing_is_to_be_found(golden: Golden) -> None:
    config = configure(burnt=GLYPH)
    found = AUDIT.certify("Is it?", config, table(0.2, 0.11, 0.3))
    assert found is not None
    said = found.findings[0].sentence
    golden(said, "said")
    golden(found.steps[0], "found.steps[0]")
    assert "run the actual audit: burnt=null." in found.steps[1]


def test_without_an_interval_the_effect_is_told_and_one_beyond_all_numbers_is_no_error(golden: Golden) -> None:
    (finding,) = of_pairs(0.3656, None, None, 1).findings
    golden(finding.sentence, "finding.sentence")
    golden(of_pairs(0.5, -12.0, 13.0, 2).findings[0].sentence, "sentence")
    golden(of_pairs(0.5, -900.0, 901.0, 3).findings[0].sentence, "sentence")


UNTIL = {"canaries": 12, "drawn": True, "stopping_level": 0.05}


def bets(largest: float, n: int) -> dict[str, Any]:
    row = dict.fromkeys(SUMMARY.names) | {"metric": BETS, "setting": json.dumps({"level": 0.05, "others": 200})}
    return row | {"estimate": largest, "n": n, "unit": "pair of trainings", "null": 1.0, "p_value": 1 / largest}


def test_bets_alone_accuse_a_run_that_ends_once_it_is_decided(golden: Golden) -> None:
    strong = (0.366, 0.193, 0.540, 12, *calls(0.5, 12, 239, p_value=1e-6))
    assert pair_verdict(table(*strong)).answer == "memorised"
    for more in ((), (bets(19.9, 12),)):
        assert pair_verdict(table(*strong, *more), **UNTIL).answer == "undecided"
    said = pair_verdict(table(0.3, 0.2, 0.4, 3, bets(20.5, 3)), **UNTIL)
    assert said.answer == "memorised"
    assert said.rows[0][0] == BETS
    golden(said.sentence)
    assert "an answer needs at least" not in said.sentence
    golden(said.limits, "said.limits")


@pytest.mark.parametrize(
    "interval",
    [
        (0.3, 0.2, 0.4, 6),
        (0.3, 0.2, 0.4, 5),
        (0.0, -0.2, 0.1, 12),
        (-0.2, -0.35, -0.05, 12),
        (0.0, -0.05, 0.05, 12),
        (0.3, 0.2, 0.4, 3, bets(19.0, 3)),
        (0.3, 0.2, 0.4, 3, bets(20.0, 3)),
    ],
)
def test_the_effect_says_what_it_decides_by_itself(golden: Golden, interval: tuple[Any, ...]) -> None:
    until = UNTIL if len(interval) > 4 else {}
    golden(pair_verdict(table(*interval), **until).sentence)


def tied(share: float) -> dict[str, Any]:
    return tied_row(share, 10, "canary")


@pytest.mark.parametrize(
    ("ranks", "answer"),
    [
        (calls(0.0, 10), "not detected"),
        (calls(0.1, 10), "memorised"),
        (calls(0.1, 10, large=False), "below the relevant size"),
        ([*calls(0.0, 10), tied(0.051)], "not assessable"),
        ([*calls(0.1, 10), tied(0.051)], "memorised"),
        (calls(0.0, 12), "undecided"),
        (calls(0.0, 12, 10), "undecided"),
        (calls(0.0, 2, 20), "undecided"),
        (exactly(0.0, 300_000), "undecided"),
        (calls(0.0, 10, p_value=0.05), "undecided"),
        (calls(0.0, 10, p_value=0.001), "memorised"),
    ],
)
def test_the_ranks_say_what_they_decide_by_themselves(golden: Golden, ranks: list[dict[str, Any]], answer: str) -> None:
    said = pair_verdict(table(0.02, -0.03, 0.07, 12, *ranks))
    assert said.answer == answer
    golden(said.sentence)
    unknown = [ranks[0], ranks[1] | {"estimate": None, "low": None}]
    assert "found beyond chance" not in pair_verdict(table(0.02, -0.03, 0.07, 12, *unknown)).sentence


def test_the_rules_of_pairs_name_their_errors(golden: Golden) -> None:
    configs = (UniqueFeature(), configure(UNTIL))
    assert [len([*RULES.applicable_cases(config)]) for config in configs] == [8, 5]
    assert [ANSWERING.applies(config) for config in (*configs, UniqueFeature(Given((28, 28, 1))))] == [
        True,
        True,
        False,
    ]
    page = of_pairs(0.3, 0.2, 0.4)
    golden(page.rule, "page.rule")
    golden(page.error, "page.error")


def test_only_a_run_that_bets_ended_says_that_it_was_ended() -> None:
    said = [pair_verdict(table(0.3, 0.2, 0.4, 12, bets(of, 12)), **UNTIL).limits for of in (19.0, 20.0)]
    assert [STOPPED_LIMITS in limits for limits in said] == [False, True]
    found = [thresholds(configure(UNTIL | {"stopping_level": level})) for level in (0.01, 0)]
    assert [(each["bets"], each["bet_alarms"]) for each in found] == [("100", "1"), ("20", "5")]


def test_all_planned_pairs_are_needed_to_clear(golden: Golden) -> None:
    clear = (0.0, -0.01, 0.01, 12, *calls(0.0, 12, 239, p_value=0.5))
    said = pair_verdict(table(*clear, bets(3.0, 12)), **UNTIL)
    assert said.answer == "not detected"
    golden(said.sentence)


def test_the_certificate_of_a_decided_run_draws_its_evidence_on_a_line(golden: Golden) -> None:
    found = AUDIT.certify("Is it?", configure(UNTIL), table(0.3, 0.2, 0.4, 3, bets(53.0, 3)))
    assert found is not None
    (finding,) = found.findings
    assert finding.line is not None
    assert (finding.line.estimate, finding.line.null, finding.line.boundaries[0].value) == (53.0, 1.0, 20.0)
    golden(found.error)
