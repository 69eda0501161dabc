"""Epsilon from below by canaries: what is promised and kept, a promise that is broken, and trainings by coins."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from orchestrator.planning.plan import Plan
from tasks.audits.membership import PRESETS, Membership, plan
from tasks.audits.membership.answer import certificate, effect, verdict
from tasks.audits.membership.canary_answer import (
    BROKEN_MEANING,
    CanaryEvidence,
    has_canaries,
    has_private_canaries,
)
from tasks.audits.membership.config import About, tiny
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.epsilon import EPSILON, AtDelta, epsilon
from tasks.audits.membership.trainings import CANARIES, canary_answers, canary_jobs
from tasks.contract.epsilon_rows import AT_LEAST, SPENT
from tasks.contract.job import marks
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import row
from tasks.contract.verdict import Verdict
from tasks.datasets.catalog import pin
from tasks.numerics.epsilon import gaussian_mu
from tasks.numerics.statistics import Estimate
from tasks.training.mixed import train
from tasks.training.recipe import Privacy
from tests.tasks.audits.membership.made_up import make_canaries

LADDER = PRESETS["one_run"]
assert isinstance(LADDER, tuple)
PLAIN, *PRIVATE = LADDER
PROMISED = PRIVATE[-1]


def answer_of(tables: list[pa.Table], config: Membership) -> tuple[pa.Table, Verdict]:
    rows = summary(About(0.05), [epsilon(AtDelta(1e-5), tables)])
    return rows, verdict(config, rows)


def test_a_kept_promise_is_told_with_the_bound_beside_it() -> None:
    rows, given = answer_of(make_canaries(gaussian_mu(4.0, 1e-5), 4.0), PRIVATE[1])
    assert "memorised" == given.answer
    assert "of 700 canaries shows that its epsilon is at least 1.58 (confidence 95 %" in given.sentence
    assert given.sentence.endswith("which its accountant's 4 allows.")
    by_bound = {json.loads(row["setting"]).get("bound"): row for row in rows.to_pylist() if "at least" in row["metric"]}
    assert {"bets", "one run", "one run, Gaussian"} == set(by_bound)
    assert all(0 < row["estimate"] < 4 for row in by_bound.values())


def test_a_bound_above_the_accountant_is_a_broken_promise() -> None:
    rows, given = answer_of(make_canaries(3.0, 1.0), PROMISED)
    assert "promise broken" == given.answer
    assert "which is more than the 1 that its accountant says: a broken promise." in given.sentence
    (spent,) = [row for row in rows.to_pylist() if row["metric"] == "epsilon by the accountant"]
    assert spent["p_value"] <= 0.05
    page = certificate(PROMISED, rows, given)
    assert "lies above the epsilon that the accountant says was spent" in page.rule
    assert "Of 100 audits of trainings that are as private as promised, at most 5 are called so." in page.error


@pytest.mark.parametrize(
    ("bound", "spent", "answer", "words"),
    [
        (1.01, 1.0, "promise broken", "which is more than the 1 that its accountant says: a broken promise."),
        (1.0, None, "memorised", "it was not private."),
        (1.0, 1.0, "memorised", "which its accountant's 1 allows."),
        (0.001, None, "memorised", "it was not private."),
        (0.0, 1.0, "undecided", "which its accountant's 1 allows."),
    ],
)
def test_a_bound_is_judged_by_what_was_spent_and_by_0(
    bound: float, spent: float | None, answer: str, words: str
) -> None:
    metrics = [(AT_LEAST, bound), (AT_LEAST, 9.0), *([] if spent is None else [(SPENT, spent)])]
    about = [
        ({"bound": number}, metric, Estimate(value, None, None, 700)) for number, (metric, value) in enumerate(metrics)
    ]
    rows = pa.Table.from_pylist([row(metric, setting, value, "canary") for setting, metric, value in about], SUMMARY)
    config = PLAIN if spent is None else PROMISED
    given = verdict(config, rows)
    assert (answer, (AT_LEAST, '{"bound": 0}')) == (given.answer, given.rows[0])
    assert (1 if spent is None else 2) == len(given.rows)
    assert given.sentence.startswith(f"{answer.capitalize()}: what the training says of 700 canaries shows that")
    shown = f"is at least {bound:.3g} (confidence 95 %; 0 where nothing is told)"
    assert given.sentence.endswith(f"{shown}{', ' if spent else '; '}{words}")
    effect_row, page = effect(config, rows), certificate(config, rows, given)
    assert effect_row is not None
    assert bound == effect_row["estimate"]
    ((said, line),) = [(finding.answer, finding.line) for finding in page.findings]
    assert line is not None
    assert answer == said
    assert page.steps[0].startswith("Nothing follows" if answer == "undecided" else "Treat what")
    assert bound == line.estimate
    assert "at a confidence of 95 %" in page.rule
    assert ("promise broken" in page.rule) == (spent is not None)
    assert "at most 5 are called so." in page.error
    assert certificate(config, pa.Table.from_pylist([], SUMMARY), given).findings[0].line is None


def test_a_promise_that_is_kept_to_the_limit_is_seldom_called_broken() -> None:
    mu = gaussian_mu(1.0, 1e-5)
    said = [answer_of(make_canaries(mu, 1.0, canaries=300, seed=seed), PROMISED)[1].answer for seed in range(40)]
    assert said.count("promise broken") <= 5  # of 40 at 5 %: more with a chance of 1 in 70


def test_what_has_canaries_is_judged_by_them() -> None:
    halves = Membership(models=8, privacy=Privacy(8.0))
    one = replace(PLAIN, canaries=1, examples=8)
    assert (False, True) == (has_canaries(halves), has_canaries(one))
    assert [False, False, True] == [has_private_canaries(each) for each in (halves, PLAIN, PROMISED)]
    assert "accused" == BROKEN_MEANING.tone
    assert not CanaryEvidence({"estimate": 9.0}, None).exceeds_promise


def test_without_privacy_there_is_nothing_to_break_and_a_bound_of_0_clears_nobody() -> None:
    assert "it was not private" in answer_of(make_canaries(3.0, None), PLAIN)[1].sentence
    assert "undecided" == answer_of(make_canaries(0.0, None), PLAIN)[1].answer
    assert "Undecided: no canary was asked about." == verdict(PLAIN, summary(About(0.05), [])).sentence
    assert (0, EPSILON) == (len(epsilon(AtDelta(1e-5), [])), epsilon(AtDelta(1e-5), []).schema)


def test_other_models_tell_how_hard_a_canary_is() -> None:
    few, many = make_canaries(1.5, None, models=2)[:1], make_canaries(1.5, None, models=4)
    alone, beside = (epsilon(AtDelta(1e-5), tables).to_pylist()[0] for tables in (few, many))
    assert beside["auc"] > alone["auc"] + 0.1
    assert (2800, 4) == (beside["canaries"], beside["models"])


def test_canaries_are_in_by_the_coins_by_which_the_models_are_trained() -> None:
    private = replace(PRIVATE[0], privacy=Privacy(8.0))
    config = replace(tiny(replace(private, data=pin(private.data), models=2)), batch=60)
    jobs = canary_jobs(config)
    assert 2 == len({job.inputs[0].config.shares for job in jobs})
    (job,) = jobs[:1]
    table = canary_answers(job.config, [train(job.inputs[0].config, [])])
    assert (1, CANARIES, 30) == (marks(canary_answers).version, table.schema, len(table))
    assert job.config.is_inside().tolist() == table["inside"].to_pylist()
    assert 0 < table["spent"][0].as_py() <= 8


def test_one_run_shares_its_trainings_with_the_ladder() -> None:
    config = replace(PLAIN, data=pin(PLAIN.data))
    one, many = (Plan.from_roots(plan(replace(config, models=models))) for models in (1, 8))
    assert {"epsilon", "summary"} == set(one.roots) == set(many.roots)
    assert (2, 4, 18) == (len(one.jobs.keys() & many.jobs.keys()), len(one.jobs), len(many.jobs))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"canaries": 0, "mislabelled": False}, "models is 1; it must be at least 4"),
        ({"canaries": 0, "models": 8}, "mislabelled is on and canaries is 0; only canaries are mislabelled"),
        ({"unseen": True, "examples": 800}, "canaries are given and unseen is on"),
        ({"examples": 100}, "canaries is 700; it must be at most examples, which is 100"),
        ({"optimiser": "rmsprop", "privacy": Privacy(1.0)}, "privacy is given and optimiser is rmsprop"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **fields)  # type: ignore[arg-type]
