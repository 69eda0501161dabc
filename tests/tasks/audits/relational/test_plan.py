"""Planning of jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.planning.plan import Plan
from tasks.audits.relational import AUDIT, plan, probes, probes_config, split
from tasks.audits.relational.config import Answers, Given, Linear, PrivateLinear, Relational
from tasks.audits.relational.evidence import question_subsets
from tasks.audits.relational.presets import SMOKE
from tasks.audits.relational.trainings import AnswersJob, trainings
from tasks.contract.job import Job, marks
from tasks.datasets.catalog import load_questions
from tasks.datasets.copies import CopyCount
from tasks.numerics import seeds
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import NameRemoval, ProbeQuestions, probe_sets
from tasks.training.privacy_config import DifferentialPrivacy
from tests.support.settings import with_settings
from tests.tasks.audits.relational.made_up import FACTS

HERE = with_settings(SMOKE, data=FACTS, replicates=2, epochs=5, link=2)
THEIRS = Predictions("answered", "a" * 64)


def of(config: Relational, name: str) -> dict[str, Job]:
    """Return the jobs of a task by key."""
    below = Plan.from_roots(plan(config))
    return {key: job for key, job in below.jobs.items() if marks(job.function).name == name}


def reads(config: Relational) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return the keys of the scores, and the keys that other measures read."""
    below = Plan.from_roots(plan(config))
    read = {name: tuple(below.inputs[below.roots[name][0]]) for name in ("memorization", "questions")}
    return tuple(below.roots["scores"]), read


def question_of(config: Relational) -> Answers:
    assert isinstance(config.question, Answers)
    return config.question


def answers_of(config: Relational) -> tuple[AnswersJob, ...]:
    return trainings(question_of(config), config.seed).answers


def only(root: Any) -> Job:
    assert isinstance(root, Job)
    return root


def test_replicates_have_own_seeds_and_links() -> None:
    answers = answers_of(HERE)
    assert [(each.replicate, each.job.config.epochs) for each in answers] == [
        (0, 2),
        (0, 4),
        (0, 5),
        (1, 2),
        (1, 4),
        (1, 5),
    ]
    assert [each.job.config.recorded for each in answers] == [(0, 1, 2), (3, 4), (5,)] * 2
    assert [seeds.derive(0, "training", number) for number in (0, 0, 0, 1, 1, 1)] == [
        each.job.config.seed for each in answers
    ]
    assert [None, answers[0].job, answers[1].job] == [each.job.after for each in answers[:3]]


def test_all_replicates_share_one_split() -> None:
    assert {None} == {each.job.config.parts for each in answers_of(HERE)}
    drawn, again = (with_settings(HERE, split="drawn", seed=seed) for seed in (0, 1))
    parts = [{each.job.config.parts for each in answers_of(config)} for config in (drawn, again)]
    assert [{seeds.derive(seed, "parts")} for seed in (0, 1)] == parts


def test_last_link_equals_unbroken_training() -> None:
    (*_, last), (whole,) = (answers_of(with_settings(HERE, replicates=1, link=link)) for link in (2, 0))
    assert last.job.config == replace(whole.job.config, recorded=(5,))
    assert whole.job.config.recorded == (0, 1, 2, 3, 4, 5)


def test_questions_read_last_links_only() -> None:
    scores, read = reads(HERE)
    assert len(scores) == 6
    assert {"memorization": scores, "questions": (scores[2], scores[5])} == read


def test_summary_does_not_read_scores() -> None:
    read = {marks(job.function).name for job in only(plan(HERE)["summary"]).inputs}
    assert read == {"relational.memorization", "relational.commonest_answers"}


def test_given_answers_are_read_and_nothing_is_trained() -> None:
    config = with_settings(HERE, predictions=THEIRS)
    assert of(config, "language_models.fine_tune") == {}
    (read,) = of(config, "question_answering.read_answers").values()
    assert (read.config.given, read.config.data) == (THEIRS, FACTS)
    assert read.config.selection == question_of(config).selection
    scores, read = reads(config)
    assert {"memorization": scores, "questions": scores} == read


@pytest.mark.parametrize(("question", "tasks"), [(Linear(), {"curves", "recovery"}), (PrivateLinear(), {"private"})])
def test_linear_model_needs_neither_data_nor_model(question: Linear | PrivateLinear, tasks: set[str]) -> None:
    planned = plan(Relational(question))
    assert set(planned) == {"summary", *(f"linear_{task}" for task in tasks)}
    names = {marks(job.function).name for job in Plan.from_roots(planned).jobs.values()}
    assert names == {"relational.summary", *(f"linear_memorization.{task}" for task in tasks)}


@pytest.mark.parametrize(
    ("fields", "trained", "measured"),
    [
        ({"seed": 1}, False, False),
        ({"epochs": 6}, False, False),
        ({"relation": "redrawn"}, False, False),
        ({"split": "drawn"}, False, False),
        ({"adaptation": "lora"}, False, False),
        ({"resamples": 7}, True, False),
        ({"negligible": 0.1}, True, True),
        ({"link": 0}, False, False),  # one job then answers after all epochs
    ],
)
def test_fields_enter_keys_of_dependent_jobs(fields: dict[str, Any], trained: bool, measured: bool) -> None:
    for name, same in (("language_models.fine_tune", trained), ("relational.memorization", measured)):
        found = [set(of(config, name)) for config in (HERE, with_settings(HERE, **fields))]
        assert same == (found[0] == found[1]), name


def test_summary_has_decisive_questions_and_epsilon() -> None:
    assert only(plan(HERE)["summary"]).config.questions == "numeric"
    private = with_settings(HERE, privacy=DifferentialPrivacy(3.0), corruption=NameRemoval(("Ada",)))
    about = only(plan(private)["summary"]).config
    assert (about.questions, about.epsilon, about.cell, about.copies) == ("all", 3.0, "", CopyCount())
    assert question_subsets(question_of(HERE)) == ("numeric", "all")


def parts() -> dict[str, ProbeQuestions]:
    question = question_of(HERE)
    return dict(probe_sets(load_questions(question.data), question.corruption, question.selection))


def test_handout_has_both_parts_and_contexts() -> None:
    config = probes_config(HERE)
    ((name, handed),) = probes(config)
    key = {row["id"]: (row["set"], row["question"]) for row in split(config).key.to_pylist()}
    assert list(key) == [each.id for each in handed.questions] == [each.context_id for each in handed.questions]
    assert all(each.id.startswith(f"{name}-") and not each.golds for each in handed.questions)
    found = {key[each.id]: (each.question, each.context) for each in handed.questions}
    expected = {(of, each.id): (each.question, each.context) for of, set_ in parts().items() for each in set_.questions}
    assert expected == found
    assert (len(expected), round(1.1 * len(expected))) == (240, len(handed.questions))
    assert AUDIT.handout is not None
    assert (probes, split) == (AUDIT.handout.probes, AUDIT.handout.split)


def test_blinded_answers_equal_answers_by_id(tmp_path: Path) -> None:
    (tmp_path / "four").mkdir()
    (tmp_path / "one").mkdir()
    for of, set_ in parts().items():
        sent = {each.id: f"{of} {each.id}" for each in set_.questions}
        (tmp_path / "four" / f"{of}.json").write_text(json.dumps(sent))
    config = with_settings(HERE, secret="0123456789abcdef")
    rows = split(config).key.to_pylist()
    (tmp_path / "one" / "any.json").write_text(
        json.dumps({row["id"]: f"{row['set']} {row['question']}" for row in rows})
    )
    tables = []
    for name in ("four", "one"):
        given = with_settings(config, predictions=Predictions(str(tmp_path / name)).pin({}))
        (read,) = answers_of(given)
        tables.append(read.job.function(read.job.config, ()))
        assert (name == "one") == ("repeats" in plan(given))
        assert "evasions" in plan(given)
    assert tables[0].equals(tables[1])
    assert "evasions" not in plan(HERE)


def test_predictions_are_pinned_by_content(tmp_path: Path) -> None:
    for name, handed in parts().items():
        (tmp_path / f"{name}.json").write_text(json.dumps({each.id: "7" for each in handed.questions}))
    pinned = Predictions(str(tmp_path)).pin({})
    moved = replace(pinned, path="elsewhere")
    keys = [set(of(with_settings(HERE, predictions=each), "relational.score")) for each in (pinned, moved, THEIRS)]
    assert keys[0] == keys[1] != keys[2]


def test_incomplete_predictions_are_refused(tmp_path: Path) -> None:
    for name in parts():
        (tmp_path / f"{name}.json").write_text("{}")
    config = with_settings(HERE, predictions=Predictions(str(tmp_path)).pin({}))
    with pytest.raises(ValueError, match="has no answer to 60 of 60 questions, the first of them 'facts-0000-0'"):
        plan(config)
    with pytest.raises(ValueError, match="examples is 9999; the data has 3000 such questions"):
        plan(with_settings(HERE, examples=9999))
    with pytest.raises(ValueError, match="predictions: expected a file of answers, got none"):
        plan(with_settings(HERE, system=Given()))
