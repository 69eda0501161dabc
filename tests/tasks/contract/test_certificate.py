"""The default certificate of an audit: its question, its verdict and the first row of the verdict."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tasks.contract.audit import Audit, Wording
from tasks.contract.certificate import (
    STEPS,
    describe_difference,
    line_of,
    number_per_hundred,
    part_of,
    range_per_hundred,
    state_rarity,
    steps_of_null,
)
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, alone, blank_weak_interval, p_in_words, row
from tasks.contract.verdict import Verdict


def judged(_config: object, summary: pa.Table) -> Verdict:
    """Memorised: the interval is above 0,
    as for 1 in 40.

    More.
    """
    return Verdict("memorised", "Memorised: 0.3.", "Not all.", (("second", "{}"), ("first", "{}")))


def audit(**fields: object) -> Audit:
    return Audit(object, lambda _: {}, {}, lambda config: config, judged, **fields)  # type: ignore[arg-type]


ROWS = pa.Table.from_pylist(
    [row("first", {}, alone(1.0), "training"), row("second", {}, Estimate(0.3, 0.1, 0.5, 9), "training", 0.0)], SUMMARY
)


def test_certificate_contains_verdict_and_first_row() -> None:
    certificate = audit().certify("Is it kept?", None, ROWS)
    assert certificate is not None
    assert certificate.asked == "Is it kept?"
    assert certificate.beyond == "Not all."
    assert certificate.steps == STEPS["accused"]
    assert certificate.rule == "Memorised: the interval is above 0, as for 1 in 40."
    (finding,) = certificate.findings
    assert finding.answer == "memorised"
    assert finding.sentence.startswith("Memorised: 0.3.")
    assert finding.line is not None
    assert finding.line.what == "second"
    assert finding.line.estimate == 0.3
    assert finding.line.low == 0.1
    assert finding.line.high == 0.5
    assert finding.line.null == 0.0


def test_audit_without_verdict_has_no_certificate() -> None:
    assert Audit(object, lambda _: {}, {}, lambda config: config).certify("Is it?", None, ROWS) is None


def test_audit_may_define_its_certificate() -> None:
    certificate = audit(
        wording=Wording(certificate=lambda config, summary, verdict: (config, summary, verdict))
    ).certify("", 3, ROWS)
    assert (3, ROWS, judged(3, ROWS)) == certificate  # type: ignore[comparison-overlap]


def test_row_without_number_has_no_line() -> None:
    assert line_of(row("none", {}, alone(None), "training")) is None
    assert line_of(None) is None


def test_shares_are_written_as_numbers_per_hundred() -> None:
    assert [number_per_hundred(share) for share in (0.1234, 0.00123, -0.05, 1.0, 0.0, -0.0)] == [
        "12",
        "0.12",
        "-5",
        "100",
        "0",
        "0",
    ]


def test_range_of_negative_share_is_ascending() -> None:
    interval = {"low": -0.123, "high": 0.05}
    assert range_per_hundred(interval) == "-12 to 5"
    assert range_per_hundred({"low": 0.99971, "high": 1.0}) == "99.97 to 100"
    assert range_per_hundred({"low": 1.0, "high": 1.0}) == "100 to 100"


def test_null_has_steps_without_training_data() -> None:
    alarm = steps_of_null("memorised", "asked=train")
    quiet = steps_of_null("undecided", "asked=train")
    assert "This is a false alarm and discloses no data. Repeat the control run with two other random seeds" in alarm[0]
    assert "it shows the result when nothing can be memorised" in quiet[0]
    assert alarm[1] == quiet[1]
    assert alarm[1].endswith("run the actual audit (`asked=train`).")


def test_p_values_have_two_digits_and_a_floor() -> None:
    assert p_in_words(0.0149) == "p = 0.015"
    assert p_in_words(1e-6) == "p = 1e-6"
    assert p_in_words(9.9e-7) == "p < 1e-6"


def test_weak_and_out_of_range_intervals_are_blank() -> None:
    def has(metric: str, low: float, high: float, n: int = 12) -> bool:
        return blank_weak_interval(row(metric, {}, Estimate(0.5, low, high, n), "training"))["low"] is not None

    assert not has("M", 0.1, 0.9, n=2)
    assert has("M", -0.1, 1.9, n=3)
    assert has("accuracy", 0.1, 1.0)
    central = "highly memorised within the central log p"
    for metric in ("accuracy", "validation accuracy", "P_u", "share of D_Q held", "rate called memorised", central):
        assert not has(metric, -0.01, 0.9)
        assert not has(metric, 0.1, 1.01)
    assert has("accuracy gain", -0.1, 0.2)


@pytest.mark.parametrize(
    ("share", "n", "words"), [(0.675, 40, "27 of 40"), (0.694, 600, "69 % of 600"), (1, 5, "5 of 5")]
)
def test_share_is_a_count_if_it_is_whole(share: float, n: int, words: str) -> None:
    assert part_of(share, n) == words


@pytest.mark.parametrize(
    ("estimate", "low", "high", "words"),
    [
        (0.425, 0.29, 0.57, "42.5 percentage points in favour of A (95 % interval: 29 to 57 points)"),
        (-0.1, -0.12, -0.052, "10 percentage points in favour of B (95 % interval: 5.2 to 12 points)"),
        (
            0.01,
            -0.03,
            0.05,
            "1 percentage point in favour of A (95 % interval: from 3 points in favour of B to 5 points in favour of "
            "A; this range includes no difference, so chance alone may explain the result)",
        ),
    ],
)
def test_difference_has_no_sign(estimate: float, low: float, high: float, words: str) -> None:
    assert describe_difference({"estimate": estimate, "low": low, "high": high}, "A", "B") == words


def test_no_difference_favours_neither() -> None:
    row = {"estimate": 0.0, "low": -0.01, "high": 0.01}
    assert describe_difference(row, "A", "B").startswith("0 percentage points (95 % interval: from 1 point in")


def test_rarity_is_out_of_a_thousand() -> None:
    assert state_rarity(0.005, "models", "do so") == "Of 1,000 models, about 5 would do so."
    assert state_rarity(0.0001, "models", "do so") == "Of 1,000 models, fewer than 1 would do so."
