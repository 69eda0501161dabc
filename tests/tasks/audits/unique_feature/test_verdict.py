"""The answer in words follows from one row that was chosen beforehand, and says what it does not decide."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.unique_feature import AUDIT, UniqueFeature
from tasks.audits.unique_feature.verdict import (
    ALLOWED,
    BEYOND,
    CALLED,
    CHOSEN_GLYPH_LIMITS,
    CHOSEN_LIMITS,
    FOUND,
    GLYPHS,
    ONE_MODEL,
    OTHERS,
    PANEL_LIMITS,
    PUSH,
    RANK,
    ROWS,
    SHARED,
    SMALLEST,
    UPPER,
    panel_verdict,
    unit_name,
    verdict,
)
from tasks.datasets.features import Glyph
from tasks.datasets.features import describe_feature as name_of
from tasks.schemas import SUMMARY

A = Glyph()
GLYPH = Glyph(kind="random", seed=1)


def table(estimate: float | None, low: float | None, high: float | None, n: int = 12, *more: Any) -> pa.Table:
    row = dict.fromkeys(SUMMARY.names) | {"metric": ROWS[0][0], "setting": ROWS[0][1], "unit": "pair of trainings"}
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
        (0.021, -0.031, 0.073, "not seen"),
        (-0.05, -0.14, 0.04, "not seen"),
        (-0.2, -0.35, -0.05, "undecided"),  # below the bound by chance: an effect at it would hardly have shown
        (0.05, -0.1, 0.2, "undecided"),  # an effect that would matter cannot be excluded
        (0.0, -0.2, 0.1, "undecided"),  # nor at the bound itself
        (0.0, 0.0, 0.0, "not seen"),
    ],
)
def test_the_interval_decides(estimate: float, low: float, high: float, answer: str) -> None:
    said = verdict(A, A, table(estimate, low, high, 12, *calls(0.0, 12, 239, p_value=0.5)))
    assert answer == said.answer
    assert said.sentence.lower().startswith(answer)
    for number in (estimate, low, high):
        assert f"{number:.4g}" in said.sentence
    assert "12 pairs of trainings" in said.sentence
    assert "a single training image with the letter A changes" in said.sentence
    assert [ROWS[0][0], CALLED, BEYOND] == [metric for metric, _ in said.rows]


def test_one_training_has_no_interval_and_decides_nothing() -> None:
    said = verdict(A, A, table(5.0, None, None, 1))
    assert "undecided" == said.answer
    assert "no interval" in said.sentence


def test_a_few_trainings_decide_nothing_however_well_they_agree() -> None:
    assert ["undecided", "memorised"] == [verdict(A, A, table(0.3, 0.2, 0.4, n)).answer for n in (5, 6)]
    clear = [table(0.0, -0.01, 0.01, n, *calls(0.0, n, p_value=0.5)) for n in (5, 6)]
    assert ["undecided", "not seen"] == [verdict(A, A, each).answer for each in clear]


@pytest.mark.parametrize("nothing", [table(None, None, None, 0), SUMMARY.empty_table()])
def test_without_scores_there_is_no_answer_yet(nothing: pa.Table) -> None:
    assert "undecided" == verdict(A, A, nothing).answer


def test_it_says_how_often_the_published_test_accuses_the_innocent() -> None:
    said = verdict(A, A, table(0.4, 0.2, 0.6, 12, called("canary", 0.25), called("twin", 1 / 12)))
    assert "calls 3 of 12 canary models memorised, and 1 of 12 of their twins" in said.published
    assert "published" not in said.limits


def test_a_null_run_says_that_it_is_one() -> None:
    assert "carried another feature" in verdict(A, GLYPH, table(0.0, -0.01, 0.02)).sentence
    assert "carried another" not in verdict(GLYPH, GLYPH, table(0.0, -0.01, 0.02)).sentence


@pytest.mark.parametrize(
    ("asked", "carried", "drawn", "image", "probe"),
    [
        (A, A, False, "the letter A", "the letter A"),
        (A, GLYPH, False, "another one", "the letter A"),
        (GLYPH, A, False, "another one", name_of(GLYPH)),
        (A, A, True, "a feature drawn from the family of the letter A", "that feature"),
        (A, GLYPH, True, "another one", "that feature"),
    ],
)
def test_it_names_the_feature_that_was_in_the_image_and_the_one_asked_about(
    asked: Glyph, carried: Glyph, drawn: bool, image: str, probe: str
) -> None:
    said = verdict(asked, carried, table(0.4, 0.2, 0.6), drawn).sentence
    told = (
        f"a single training image with {image} changes log P(its label | {probe}) - log P(its label | a random patch)"
    )
    assert said.startswith(f"Memorised: {told}")


def calls(share: float, n: int, others: int = 200, p_value: float = 0.5, **shared: bool) -> list[dict[str, Any]]:
    setting = json.dumps({"false discovery rate": 0.05, "others": others} | shared)
    row = dict.fromkeys(SUMMARY.names) | {"metric": CALLED, "setting": setting, "estimate": share, "n": n}
    small = {"metric": BEYOND, "setting": '{"p": 0.05}', "estimate": 0.2, "low": 0.1, "high": 0.4, "n": n}
    return [row, dict.fromkeys(SUMMARY.names) | small | {"p_value": p_value}]


def test_a_minority_that_is_called_is_never_said_to_be_not_seen() -> None:
    said = verdict(A, A, table(0.02, -0.03, 0.07, 20, *calls(0.15, 20)))
    assert "memorised" == said.answer
    assert "3 of 20 canaries are called memorised one by one (paired rank among 200 others" in said.sentence
    assert "20 % of all are found beyond chance at p of 0.05 (95 % interval 10 % to 40 %)" in said.sentence
    assert [CALLED, ROWS[0][0], BEYOND] == [metric for metric, _ in said.rows]  # what decided comes first


def exactly(share: float, n: int, p_value: float = 0.5) -> list[dict[str, Any]]:
    called, small = calls(share, n, p_value=p_value)
    return [called | {"setting": json.dumps({"false discovery rate": 0.05, GLYPHS: 4457400})}, small]


def test_exact_ranks_say_among_how_many_glyphs_and_clear_a_hundred_canaries() -> None:
    said = verdict(A, A, table(0.02, -0.03, 0.07, 100, *exactly(0.01, 100)))
    assert "memorised" == said.answer
    told = (
        "1 of 100 canaries is called memorised one by one (rank among all 4,457,400 glyphs, false discovery rate 5 %)"
    )
    assert told in said.sentence
    assert (True, False) == (CHOSEN_GLYPH_LIMITS in said.limits, CHOSEN_LIMITS in said.limits)
    clear = verdict(A, A, table(0.02, -0.03, 0.07, 100, *exactly(0.0, 100)), True)
    assert ("not seen", False) == (clear.answer, CHOSEN_GLYPH_LIMITS in clear.limits)


def test_ranks_alone_can_accuse_and_cannot_clear() -> None:
    called, cleared = (verdict(A, A, pa.Table.from_pylist(exactly(share, 20), SUMMARY)) for share in (0.5, 0.0))
    assert called.sentence.startswith("Memorised: 10 of 20 canaries are called memorised one by one")
    assert "undecided" == cleared.answer


def test_where_a_single_canary_could_not_be_called_nothing_is_cleared() -> None:
    said = verdict(A, A, table(0.02, -0.03, 0.07, 100, *calls(0.0, 100)))
    assert "undecided" == said.answer
    assert "0 of 100 canaries are called memorised" in said.sentence
    assert "fewer than 10 could not have been called: rank each among more others (family.count=1999)" in said.sentence
    few = verdict(A, A, table(0.02, -0.03, 0.07, 12, *calls(0.0, 12, 10)))
    assert ("undecided", True) == (few.answer, "none could have been called" in few.sentence)
    could = verdict(A, A, table(0.02, -0.03, 0.07, 100, *calls(0.0, 100, 1999)))
    assert ("not seen", False) == (could.answer, "could" in could.sentence)


@pytest.mark.parametrize(
    ("p_value", "answer"), [(0.001, "memorised"), (0.0011, "undecided"), (0.05, "undecided"), (0.051, "not seen")]
)
def test_more_small_ranks_than_chance_brings_count_where_none_is_called(p_value: float, answer: str) -> None:
    said = verdict(A, A, table(0.02, -0.03, 0.07, 10, *calls(0.0, 10, p_value=p_value)))
    assert answer == said.answer
    assert (BEYOND if answer == "memorised" else ROWS[0][0]) == said.rows[0][0]
    assert (answer != "not seen") == (f"chance brings so many small ranks in {p_value:.2g} of runs" in said.sentence)


def test_the_ranks_of_canaries_that_share_training_seeds_decide_nothing() -> None:
    shared = calls(0.9, 10, p_value=1e-9, **{SHARED: True})
    said = verdict(A, A, table(0.02, -0.03, 0.07, 10, *shared))
    assert "undecided" == said.answer
    assert "canaries share training seeds, so that their ranks decide nothing" in said.sentence


def test_it_says_where_the_level_of_ranks_rests_on_a_choice() -> None:
    rows = table(0.4, 0.2, 0.6, 12, *calls(0.5, 12))
    assert [True, False] == [CHOSEN_LIMITS in verdict(A, A, rows, drawn).limits for drawn in (False, True)]


def test_without_ranks_no_canary_is_cleared_and_the_answer_says_why() -> None:
    said = verdict(A, A, table(0.02, -0.03, 0.07))
    assert "undecided" == said.answer
    assert "No canary is ranked, as its feature has too few others of its kind" in said.sentence


def test_canaries_of_one_training_seed_are_one_observation() -> None:
    rows = table(5.0, None, None, 1).to_pylist()
    said = verdict(A, A, pa.Table.from_pylist([rows[0] | {"unit": "training seed"}], SUMMARY))
    assert "undecided" == said.answer
    assert "one training seed has no interval" in said.sentence


def test_the_audit_offers_its_verdict() -> None:
    assert AUDIT.verdict is not None
    assert "memorised" == AUDIT.verdict(UniqueFeature(), table(0.4, 0.2, 0.6)).answer


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
    alone = verdict(A, A, table(0.4, 0.2, 0.6, 12, called("canary", 0.25)))
    unknown = verdict(A, A, table(0.4, 0.2, 0.6, 12, called("canary", 0.25), called("twin", 0.0) | {"n": 0}))
    assert [False, False] == [bool(said.published) for said in (alone, unknown)]


# Models that were asked alone


def pushed(
    estimate: float | None,
    low: float,
    high: float,
    p_value: float,
    n: int = 1,
    known: bool = True,
    power: float = 0.8,
    members: int = 201,
) -> pa.Table:
    setting = json.dumps({"label": 3, "label known": known})
    rows = [
        {"metric": "M", "setting": "{}", "estimate": 9.0},
        {"metric": PUSH, "setting": setting, "estimate": estimate, "n": n, "null": 0.25, "p_value": p_value},
        {"metric": OTHERS, "setting": setting, "estimate": 0.25, "low": low, "high": 0.375, "n": 200},
        {"metric": UPPER, "setting": '{"confidence": 0.975}', "estimate": high, "n": n},
        {"metric": FOUND, "setting": '{"nats": 0.1}', "estimate": power},
        {"metric": RANK, "setting": "{}", "estimate": members * p_value, "null": (members + 1) / 2, "n": n}
        | {"p_value": p_value},
    ]
    return pa.Table.from_pylist([dict.fromkeys(SUMMARY.names) | row for row in rows], SUMMARY)


@pytest.mark.parametrize(
    ("low", "high", "p_value", "answer"),
    [
        (0.2, 0.6, 0.01, "memorised"),
        (-0.2, 0.6, 0.05, "memorised"),
        (0.2, 0.6, 0.051, "undecided"),
        (-0.3, 0.09, 0.051, "not seen"),
        (-0.3, SMALLEST, 0.051, "undecided"),
    ],
)
def test_the_rank_decides_of_a_model_that_is_asked_alone(low: float, high: float, p_value: float, answer: str) -> None:
    said = panel_verdict(A, pushed(0.4, low, high, p_value))
    assert answer == said.answer
    asked = "asked about the letter A and 200 others of its family, the model answers to it as number"
    assert said.sentence.startswith(
        f"{answer.capitalize()}: {asked} {201 * p_value:.0f} of 201 (rank p = {p_value:.2g})"
    )
    assert f"by 0.4 nats more than the mean of the others (95 % of these by {low:.3g} to 0.375)" in said.sentence
    assert ((RANK, "{}"), PANEL_LIMITS) == (said.rows[0], said.limits)
    assert [RANK, PUSH, OTHERS] == [metric for metric, _ in said.rows]


def test_a_family_too_wide_to_show_a_push_clears_nothing() -> None:
    said = panel_verdict(A, pushed(-0.6, -1.0, 0.09, 0.9, power=0.1))
    assert "undecided" == said.answer
    assert "a push of 0.1 nats would have been found in 10 % of cases" in said.sentence


def test_the_first_push_of_a_summary_decides() -> None:
    rows = [pushed(0.4, 0.2, 0.6, 0.01), pushed(None, 0.0, 0.0, 1.0)]
    assert ["memorised", "undecided"] == [
        panel_verdict(A, pa.concat_tables(each)).answer for each in (rows, rows[::-1])
    ]


def test_it_says_how_many_models_were_asked_and_about_which_label() -> None:
    assert (
        "2 models together answer to it as number 2 of 201"
        in panel_verdict(A, pushed(0.4, 0.2, 0.6, 0.01, n=2)).sentence
    )
    assert "the log odds of the canary's label by 0.4 nats" in panel_verdict(A, pushed(0.4, 0.2, 0.6, 0.01)).sentence
    assert "it raises the log odds of label 3, which it favours most, by" in (
        panel_verdict(A, pushed(0.4, 0.2, 0.6, 0.01, known=False)).sentence
    )


@pytest.mark.parametrize("nothing", [SUMMARY.empty_table(), pushed(None, 0.0, 0.0, 1.0)])
def test_where_no_model_was_asked_alone_nothing_is_decided(nothing: pa.Table) -> None:
    said = panel_verdict(A, nothing)
    assert ("undecided", "Undecided: no model has been asked yet.") == (said.answer, said.sentence)
    assert (PANEL_LIMITS, ()) == (said.limits, said.rows)


def test_what_privacy_allows_one_model_stands_beside_what_it_found() -> None:
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
    said = verdict(GLYPH, GLYPH, table(0.4, 0.2, 0.6, 16, *more), drawn=True)
    assert "memorised" == said.answer
    assert "(1, 1e-05)-differentially private in each training image" in said.limits
    assert "one model finds at most 13.6 % of drawn features at 5 %; it found 2 of 16." in said.limits
    assert "private" not in verdict(GLYPH, GLYPH, table(0.4, 0.2, 0.6, 16), drawn=True).limits
