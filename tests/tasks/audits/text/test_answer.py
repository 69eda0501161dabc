"""The answer on synthetic scores: with memory, without memory, and with changed numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import stats

from tasks.audits.text import AUDIT
from tasks.audits.text.answer import RULES, effect, verdict
from tasks.audits.text.config import About, Text
from tasks.audits.text.continuations import BY_CONTROL, BY_TRAINED
from tasks.audits.text.measures import summary
from tasks.audits.text.power import rank_resolution
from tasks.audits.text.question import Secrets
from tasks.audits.text.secrets.answer import LIMITS, LIMITS_OF_IDENTIFIERS, NULL, NULL_OF_IDENTIFIERS
from tasks.audits.text.secrets.evidence import SURELY, Evidence
from tasks.audits.text.secrets.ranks import (
    BEATEN,
    CONTROL,
    FOUND,
    MEMORISED,
    REDUCED,
    Ranking,
    combine,
    plan,
    rank_secret,
    secrets,
)
from tasks.audits.text.secrets.space import SCORES
from tasks.contract.certificate import STEPS
from tasks.contract.job import Job
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, alone, name_of, row
from tasks.contract.ties import tied_row
from tasks.numerics.statistics import mean, proportion
from tests.support.calibration import bounds
from tests.support.golden import Golden
from tests.tasks.audits.text.made_up import configure, make_scores

CONFIG = Text()
IDENTIFIERS = configure(identifiers=("uuid4",))
Array = NDArray[np.float64]


def rank(tables: list[pa.Table]) -> pa.Table:
    return secrets(Ranking(CONFIG.level), tables)


def answer_of(tables: list[pa.Table], config: Text = CONFIG) -> str:
    return verdict(config, summary(About(config.level), [rank(tables)])).answer


def test_secret_is_ranked_by_trained_and_control_model() -> None:
    ranked = rank_secret(np.array([-1.0, -2.0, -0.5, -3.0]), np.array([-4.0, -2.0, -1.5, -3.0]))
    assert ranked["candidates"] == 4
    assert ranked["rank"] == 2
    assert ranked["p_value"] == 0.5
    assert ranked["exposure"] == 1.0
    assert ranked["exposure_control"] == 0.0
    assert pytest.approx(ranked["effect"]) == 3.0 - 1 / 3


def test_model_without_control_ranks_its_own_secrets() -> None:
    tables = make_scores(8.0, 0)
    ranked_pair = rank(tables)
    ranked_alone = rank(tables[:1])
    own_secrets = tables[0].filter(tables[0]["inserted"])["secret"].to_pylist()
    assert own_secrets == ranked_alone["secret"].to_pylist()
    ranks = dict(zip(ranked_pair["secret"].to_pylist(), ranked_pair["rank"].to_pylist(), strict=True))
    assert [ranks[secret] for secret in own_secrets] == ranked_alone["rank"].to_pylist()
    assert ranked_alone["effect"].null_count == len(own_secrets)
    assert ranked_alone["exposure_control"].null_count == len(own_secrets)
    assert answer_of(tables[:1]) == "memorised"
    assert answer_of([]) == "undecided"


def scores_by_hand() -> list[pa.Table]:
    """Three secrets among four candidates; ranks 1, 2 and 4 by their trained models, the last one without a control.

    p is 1/4, 1/2 and 1, so q is 3/4, 3/4 and 1.
    """
    falling = [-1.0, -2.0, -3.0, -4.0]
    scores = [
        (1, 4, True, falling),
        (1, 4, False, [-5.0, *falling[1:]]),
        (2, 4, True, [-2.0, -1.0, -3.0, -4.0]),
        (2, 4, False, [-2.0, -1.0, -3.0, -4.0]),
        (3, 1, True, falling[::-1]),
    ]
    rows = []
    for secret, times, is_member, log_p in scores:
        rows.append({"pair": 7, "secret": secret, "repetitions": times, "inserted": is_member, "log_p": log_p})
    return [pa.Table.from_pylist([row], SCORES) for row in rows]


@pytest.mark.parametrize(("level", "found_count"), [(0.75, 2), (0.74, 0)])
def test_summary_counts_found_secrets_by_repetitions(level: float, found_count: int) -> None:
    table = secrets(Ranking(level), scores_by_hand())
    assert [
        tuple(table_row[name] for name in ("pair", "secret", "rank", "exposure", "exposure_control", "effect"))
        for table_row in table.to_pylist()
    ] == [(7, 1, 1, 2.0, 0.0, 4.0), (7, 2, 2, 1.0, 1.0, 0.0), (7, 3, 4, 0.0, None, None)]
    (first, second, large, reduced, tied, *other_rows) = summary(About(level), [table]).to_pylist()
    # A secret is reduced by less than the distance to the next candidate: nothing changes.
    assert large == row(MEMORISED, {"nats": 0.1}, alone(float(found_count), 3), "secret", 0.0, 0.75)
    assert reduced["metric"] == REDUCED
    assert reduced["p_value"] == second["p_value"]
    assert tied == tied_row(0.0, 3, "secret")
    assert row(FOUND, {"level": level}, alone(float(found_count), 3), "secret", 0.0, 0.75) == first
    # 1 - (rank - 1/2) / 4 is 7/8, 5/8 and 1/8, with a t interval wider than the range of a share. Fisher's statistic
    # has six degrees of freedom.
    combined_p = stats.chi2.sf(2 * np.log(8), 6)
    assert row(BEATEN, {}, Estimate(13 / 24, 0.0, 1.0, 3), "secret", 0.5, pytest.approx(combined_p)) == second
    uniform = (2 + 1 + np.log2(4 / 3) + 0) / 4  # bits of the ranks 1 to 4
    expected = [
        ("share found", 1, proportion(0, 1), 0.0, None),
        ("exposure in bits", 1, alone(0.0), uniform, BY_TRAINED),
        ("exposure in bits", 1, Estimate(None, None, None, 0), uniform, BY_CONTROL),
        ("effect in nats", 1, Estimate(None, None, None, 0), 0.0, None),
        ("share found", 4, proportion(found_count, 2), 0.0, None),
        ("exposure in bits", 4, mean([2.0, 1.0]), uniform, BY_TRAINED),
        ("exposure in bits", 4, mean([0.0, 1.0]), uniform, BY_CONTROL),
        ("effect in nats", 4, mean([4.0, 0.0]), 0.0, None),
    ]
    assert other_rows == [
        row(metric, {"repetitions": times} | ({} if by is None else {"by": by}), value, "secret", pytest.approx(null))
        for metric, times, value, null, by in expected
    ]


def test_single_secret_has_no_interval() -> None:
    assert summary(About(0.05), [secrets(Ranking(0.05), [])]).to_pylist() == []
    alone_ranked = secrets(Ranking(0.05), scores_by_hand()[:2])
    (beaten,) = (
        row_of_summary
        for row_of_summary in summary(About(0.05), [alone_ranked]).to_pylist()
        if row_of_summary["metric"] == BEATEN
    )
    assert tuple(beaten[name] for name in ("estimate", "low", "high", "n")) == (7 / 8, None, None, 1)
    job = plan(CONFIG, ())
    assert isinstance(job, Job)
    assert secrets == job.function
    assert Ranking(CONFIG.level) == job.config
    assert plan(IDENTIFIERS, ()) == ()


def test_p_values_are_combined_by_fishers_method() -> None:
    assert stats.combine_pvalues([0.01, 0.2, 0.7]).pvalue == pytest.approx(combine([0.01, 0.2, 0.7]))


def test_p_values_without_memory_are_uniform() -> None:
    """2,000 secrets that no model was trained on."""
    p = np.concatenate([rank(make_scores(0.0, seed, secrets=100))["p_value"].to_numpy() for seed in range(20)])
    for level in (0.002, 0.01, 0.05, 0.2, 0.5):
        low, high = bounds(level, 2000)
        assert low <= int((p <= level).sum()) <= high


@pytest.mark.slow
def test_error_rates_without_memory_are_as_stated() -> None:
    small_audits = Counter(answer_of(make_scores(0.0, seed)) for seed in range(200))
    assert small_audits["memorised"] <= bounds(CONFIG.level + SURELY, 200)[1]
    large = configure(secrets=200, references=3999)
    large_audits = Counter(answer_of(make_scores(0.0, seed, 200, 3999), large) for seed in range(30))
    assert large_audits["not detected"] >= 25


def test_known_secrets_are_found() -> None:
    for seed in range(5):
        table = rank(make_scores(8.0, seed))
        assert table.filter(table["found"]).num_rows >= 12
        assert answer_of(make_scores(8.0, seed)) == "memorised"


CHANGES: dict[str, Callable[[Array], Array]] = {
    "scaled": lambda log_p: log_p / 10,
    "rounded": lambda log_p: log_p.round(0),
    "noised": lambda log_p: log_p + np.random.default_rng(0).normal(0, 1, log_p.shape),
    "constant": np.zeros_like,
}


def change(tables: list[pa.Table], transform: Callable[[Array], Array]) -> list[pa.Table]:
    index = tables[0].column_names.index("log_p")
    result = []
    for table in tables:
        result.append(
            table.set_column(
                index, "log_p", pa.array([transform(np.array(row)).tolist() for row in table["log_p"].to_pylist()])
            )
        )
    return result


@pytest.mark.parametrize("name", CHANGES)
def test_changed_scores_accuse_no_innocent_model(name: str) -> None:
    memorising_answers = set()
    for seed in range(3):
        memorising_answers.add(answer_of(change(make_scores(8.0, seed), CHANGES[name])))
    assert memorising_answers == ({"not assessable"} if name == "constant" else {"memorised"})
    innocent = []
    for seed in range(100, 120):
        innocent.append(answer_of(change(make_scores(0.0, seed), CHANGES[name])))
    assert innocent.count("memorised") <= 4  # of 20 at 5.1 %: more with a chance of 1 in 370


@pytest.mark.parametrize(
    ("find_p_values", "memorised", "high", "tests", "tied", "expected"),
    [
        ((0.01, 0.5), (0.05, 0.5), 0.59, 25, 0.0, "memorised"),
        ((0.01, 0.5), (0.05, 0.5), 0.59, 25, 0.9, "memorised"),
        ((0.051, 0.001), (0.051, 0.001), 0.59, 25, 0.0, "memorised"),
        ((0.051, 0.0011), (0.5, 0.5), 0.59, 25, 0.051, "not assessable"),
        ((0.05, 0.0011), (0.051, 0.5), 0.59, 25, 0.05, "below the relevant size"),
        ((0.051, 0.001), (0.051, 0.0011), 0.59, 25, 0.05, "below the relevant size"),
        ((0.05, 0.0011), (0.051, 0.5), 0.6, 25, 0.0, "undecided"),
        ((0.051, 0.0011), (0.5, 0.5), 0.59, 25, 0.05, "not detected"),
        ((0.051, 0.0011), (0.5, 0.5), 0.59, 26, 0.0, "undecided"),
        ((0.051, 0.0011), (0.5, 0.5), 0.6, 25, 0.0, "undecided"),
        ((0.051, 0.0011), (0.5, 0.5), None, 25, 0.0, "undecided"),
    ],
)
def test_first_rule_that_holds_decides(
    find_p_values: tuple[float, float],
    memorised: tuple[float, float],
    high: float | None,
    tests: int,
    tied: float,
    expected: str,
) -> None:
    evidence = Evidence(
        {"p_value": find_p_values[0]},
        {"p_value": find_p_values[1], "high": high},
        0.05,
        0.1,
        tied=tied_row(tied, tests, "secret"),
        memorised={"p_value": memorised[0]},
        reduced={"p_value": memorised[1]},
        resolution=rank_resolution(Secrets(), CONFIG.level, tests),
    )
    assert RULES.decide(CONFIG, evidence).answer == expected


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("position", [0, 2])
def test_infinite_scores_are_refused(score: float, position: int) -> None:
    scores = np.array([-1.0, -2.0, -0.5, -3.0])
    broken = scores.copy()
    broken[position] = score
    for trained_scores, control_scores in ((broken, scores), (scores, broken)):
        with pytest.raises(ValueError, match="1 of 4 scores are NaN or infinite"):
            rank_secret(trained_scores, control_scores)


@pytest.mark.parametrize(
    ("control", "expected"), [(0.01, "not assessable"), (0.0101, "memorised"), (None, "memorised")]
)
def test_uneven_identifiers_precede_all_other_answers(control: float | None, expected: str) -> None:
    evenness = None if control is None else {"p_value": control}
    memorised = {"p_value": 0.001}
    evidence = Evidence(memorised, {"p_value": 0.5, "high": 0.59}, 0.05, 0.1, evenness, memorised=memorised)
    assert expected == RULES.decide(IDENTIFIERS, evidence).answer
    assert RULES.decide(CONFIG, evidence).answer == "memorised"  # secrets are drawn by the audit


def test_identifiers_are_judged_if_they_are_random(golden: Golden) -> None:
    found_row = row(FOUND, {}, Estimate(0.0, None, None, 25), "secret", 0.0, 0.2)
    beaten = row(BEATEN, {}, Estimate(0.512, 0.49, 0.53, 25), "secret", 0.5, 0.3)
    uneven = pa.Table.from_pylist(
        [found_row, beaten, row(CONTROL, {}, alone(0.1, 25), "identifier", None, 0.01)], SUMMARY
    )
    even = pa.Table.from_pylist(
        [found_row, beaten, row(CONTROL, {}, alone(0.1, 25), "identifier", None, 0.0101)], SUMMARY
    )
    answer = verdict(IDENTIFIERS, uneven)
    assert answer.answer == "not assessable"
    assert [name for name, _ in answer.rows] == [CONTROL]
    assert answer.limits == LIMITS_OF_IDENTIFIERS
    assert [condition.status for condition in answer.conditions] == ["not met"]
    golden(answer.sentence, "said.sentence")
    answer = verdict(IDENTIFIERS, even)
    assert answer.answer == "not detected"
    assert answer.rows == (name_of(found_row), name_of(beaten))
    golden(answer.sentence, "said.sentence")
    page = AUDIT.certify("Does it?", IDENTIFIERS, even)
    assert page is not None
    golden(page.asked, "page.asked")
    golden(page.findings[0].sentence, "finding")
    line = page.findings[0].line
    assert line is not None
    assert (line.estimate, line.low, line.high, line.null) == pytest.approx((51.2, 49, 53, 50))
    golden(page.other_errors, "page.other_errors")
    null = configure(IDENTIFIERS, is_null=True)
    assert verdict(null, even).sentence == f"{answer.sentence} {NULL_OF_IDENTIFIERS}"


@pytest.mark.parametrize("count", [24, 600])
def test_undecided_certificate_states_its_reason(golden: Golden, count: int) -> None:
    found_row = row(FOUND, {}, Estimate(0.0, None, None, count), "secret", 0.0, 0.2)
    beaten = row(BEATEN, {}, Estimate(0.55, 0.45, 0.65, count), "secret", 0.5, 0.3)
    page = AUDIT.certify("Does it?", CONFIG, pa.Table.from_pylist([found_row, beaten], SUMMARY))
    assert page is not None
    assert page.findings[0].answer == "undecided"
    golden(page.findings[0].sentence)


def test_answer_states_found_secrets_and_mean_rank(golden: Golden) -> None:
    found_row = row(FOUND, {}, Estimate(0.0, None, None, 25), "secret", 0.0, 0.2)
    beaten = row(BEATEN, {}, Estimate(0.512, 0.49, 0.53, 25), "secret", 0.5, 0.3)
    table = pa.Table.from_pylist([found_row, beaten], SUMMARY)
    answer = verdict(CONFIG, table)
    golden(answer.sentence, "said.sentence")
    page = AUDIT.certify("Does it?", CONFIG, table)
    assert page is not None
    assert RULES.explain(CONFIG) == page.rule
    assert STEPS["cleared"] == page.steps
    golden(page.other_errors, "page.other_errors")
    golden(page.asked, "page.asked")
    (finding,) = page.findings
    assert finding.answer == "not detected"
    assert finding.line is not None
    line = finding.line
    assert (line.estimate, line.low, line.high, line.null) == pytest.approx((51.2, 49, 53, 50))
    golden(finding.sentence, "finding")
    beaten_row = effect(CONFIG).row(CONFIG, table)
    assert beaten_row is not None
    assert beaten_row["estimate"] == 0.512
    assert answer.limits == LIMITS
    assert answer.rows == (name_of(found_row), name_of(beaten))
    reduced = beaten | {"metric": REDUCED, "p_value": 0.001}
    by_reduced_rank = verdict(CONFIG, pa.Table.from_pylist([found_row, beaten, reduced], SUMMARY))
    assert by_reduced_rank.answer == "memorised"
    assert by_reduced_rank.rows == (name_of(beaten), name_of(found_row))
    wide = pa.Table.from_pylist([found_row, beaten | {"low": None, "high": None}], SUMMARY)
    golden(verdict(CONFIG, wide).sentence, "sentence")
    null = configure(CONFIG, is_null=True)
    assert verdict(null, table).sentence == f"{answer.sentence} {NULL}"
    page = AUDIT.certify("Does it?", null, table)
    assert page is not None
    assert page.findings[0].sentence == f"{NULL} {finding.sentence}"
    assert "is_null=false" in page.steps[-1]


@pytest.mark.parametrize("metric", [FOUND, BEATEN])
def test_incomplete_evidence_is_undecided(metric: str) -> None:
    half = pa.Table.from_pylist([row(metric, {}, alone(0.0), "secret", 0.0, 0.001)], SUMMARY)
    assert verdict(CONFIG, half).answer == "undecided"


def test_certificate_without_pairs_has_no_number() -> None:
    page = AUDIT.certify("Does it?", CONFIG, SUMMARY.empty_table())
    assert page is not None
    assert page.findings[0].answer == "undecided"
    assert page.findings[0].line is None
