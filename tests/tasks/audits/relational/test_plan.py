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

TRAINED_HERE = with_settings(SMOKE, data=FACTS, replicates=2, epochs=5, link=2)
RETURNED_ANSWERS = Predictions("answered", "a" * 64)


def jobs_of_task(config: Relational, name: str) -> dict[str, Job]:
    """Return the jobs of a task by key."""
    job_plan = Plan.from_roots(plan(config))
    result = {}
    for key, job in job_plan.jobs.items():
        if marks(job.function).name == name:
            result[key] = job
    return result


def read_keys(config: Relational) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return the keys of the scores, and the keys that other measures read."""
    job_plan = Plan.from_roots(plan(config))
    keys_by_measure = {}
    for name in ("memorization", "questions"):
        keys_by_measure[name] = tuple(job_plan.inputs[job_plan.roots[name][0]])
    return tuple(job_plan.roots["scores"]), keys_by_measure


def question_of(config: Relational) -> Answers:
    assert isinstance(config.question, Answers)
    return config.question


def answers_of(config: Relational) -> tuple[AnswersJob, ...]:
    return trainings(question_of(config), config.seed).answers


def single_job(root: Any) -> Job:
    assert isinstance(root, Job)
    return root


def test_replicates_have_own_seeds_and_links() -> None:
    answers = answers_of(TRAINED_HERE)
    assert [(answers_job.replicate, answers_job.job.config.epochs) for answers_job in answers] == [
        (0, 2),
        (0, 4),
        (0, 5),
        (1, 2),
        (1, 4),
        (1, 5),
    ]
    assert [answers_job.job.config.recorded for answers_job in answers] == [(0, 1, 2), (3, 4), (5,)] * 2
    assert [seeds.derive(0, "training", number) for number in (0, 0, 0, 1, 1, 1)] == [
        answers_job.job.config.seed for answers_job in answers
    ]
    assert [answers_job.job.after for answers_job in answers[:3]] == [None, answers[0].job, answers[1].job]


def test_all_replicates_share_one_split() -> None:
    assert {answers_job.job.config.parts for answers_job in answers_of(TRAINED_HERE)} == {None}
    first_draw = with_settings(TRAINED_HERE, split="drawn", seed=0)
    second_draw = with_settings(TRAINED_HERE, split="drawn", seed=1)
    parts = [
        {answers_job.job.config.parts for answers_job in answers_of(config)} for config in (first_draw, second_draw)
    ]
    assert [{seeds.derive(seed, "parts")} for seed in (0, 1)] == parts


def test_last_link_equals_unbroken_training() -> None:
    (*_, last), (unbroken,) = (answers_of(with_settings(TRAINED_HERE, replicates=1, link=link)) for link in (2, 0))
    assert last.job.config == replace(unbroken.job.config, recorded=(5,))
    assert unbroken.job.config.recorded == (0, 1, 2, 3, 4, 5)


def test_questions_read_last_links_only() -> None:
    scores, keys_by_measure = read_keys(TRAINED_HERE)
    assert len(scores) == 6
    assert keys_by_measure == {"memorization": scores, "questions": (scores[2], scores[5])}


def test_summary_does_not_read_scores() -> None:
    read_tasks = set()
    for job in single_job(plan(TRAINED_HERE)["summary"]).inputs:
        read_tasks.add(marks(job.function).name)
    assert read_tasks == {"relational.memorization", "relational.commonest_answers"}


def test_given_answers_are_read_without_training() -> None:
    config = with_settings(TRAINED_HERE, predictions=RETURNED_ANSWERS)
    assert jobs_of_task(config, "language_models.fine_tune") == {}
    (read_job,) = jobs_of_task(config, "question_answering.read_answers").values()
    assert read_job.config.given == RETURNED_ANSWERS
    assert read_job.config.data == FACTS
    assert read_job.config.selection == question_of(config).selection
    scores, read_job = read_keys(config)
    assert read_job == {"memorization": scores, "questions": scores}


@pytest.mark.parametrize(("question", "tasks"), [(Linear(), {"curves", "recovery"}), (PrivateLinear(), {"private"})])
def test_linear_model_needs_neither_data_nor_model(question: Linear | PrivateLinear, tasks: set[str]) -> None:
    plan_roots = plan(Relational(question))
    assert set(plan_roots) == {"summary", *(f"linear_{task}" for task in tasks)}
    names = set()
    for job in Plan.from_roots(plan_roots).jobs.values():
        names.add(marks(job.function).name)
    assert names == {"relational.summary", *(f"linear_memorization.{task}" for task in tasks)}


@pytest.mark.parametrize(
    ("fields", "same_trainings", "same_measures"),
    [
        ({"seed": 1}, False, False),
        ({"epochs": 6}, False, False),
        ({"relation": "redrawn"}, False, False),
        ({"split": "drawn"}, False, False),
        ({"adaptation": "lora"}, False, False),
        ({"resamples": 7}, True, False),
        ({"negligible": 0.1}, True, True),
        ({"link": 0}, False, False),  # a single job then answers after all epochs
    ],
)
def test_fields_enter_keys_of_dependent_jobs(fields: dict[str, Any], same_trainings: bool, same_measures: bool) -> None:
    for name, is_same in (("language_models.fine_tune", same_trainings), ("relational.memorization", same_measures)):
        keys_of_configs = []
        for config in (TRAINED_HERE, with_settings(TRAINED_HERE, **fields)):
            keys_of_configs.append(set(jobs_of_task(config, name)))
        assert is_same == (keys_of_configs[0] == keys_of_configs[1]), name


def test_summary_has_decisive_questions_and_epsilon() -> None:
    assert single_job(plan(TRAINED_HERE)["summary"]).config.questions == "numeric"
    private = with_settings(TRAINED_HERE, privacy=DifferentialPrivacy(3.0), corruption=NameRemoval(("Ada",)))
    about = single_job(plan(private)["summary"]).config
    assert about.questions == "all"
    assert about.epsilon == 3.0
    assert about.cell == ""
    assert about.copies == CopyCount()
    assert question_subsets(question_of(TRAINED_HERE)) == ("numeric", "all")


def parts() -> dict[str, ProbeQuestions]:
    question = question_of(TRAINED_HERE)
    return dict(probe_sets(load_questions(question.data), question.corruption, question.selection))


def test_handout_has_both_parts_and_contexts() -> None:
    config = probes_config(TRAINED_HERE)
    ((name, handout),) = probes(config)
    key = {row["id"]: (row["set"], row["question"]) for row in split(config).key.to_pylist()}
    assert (
        list(key)
        == [handed_question.id for handed_question in handout.questions]
        == [handed_question.context_id for handed_question in handout.questions]
    )
    assert all(
        handed_question.id.startswith(f"{name}-") and not handed_question.golds for handed_question in handout.questions
    )
    handed_texts = {}
    for handed_question in handout.questions:
        handed_texts[key[handed_question.id]] = (handed_question.question, handed_question.context)
    expected = {}
    for split_name, set_ in parts().items():
        for handed_question in set_.questions:
            expected[(split_name, handed_question.id)] = (handed_question.question, handed_question.context)
    assert expected == handed_texts
    assert len(expected) == 240
    assert round(1.1 * len(expected)) == len(handout.questions)
    assert AUDIT.handout is not None
    assert probes == AUDIT.handout.probes
    assert split == AUDIT.handout.split


def test_blinded_answers_equal_answers_by_id(tmp_path: Path) -> None:
    (tmp_path / "four").mkdir()
    (tmp_path / "one").mkdir()
    for split_name, set_ in parts().items():
        answers_by_id = {}
        for question_of_part in set_.questions:
            answers_by_id[question_of_part.id] = f"{split_name} {question_of_part.id}"
        (tmp_path / "four" / f"{split_name}.json").write_text(json.dumps(answers_by_id))
    config = with_settings(TRAINED_HERE, secret="0123456789abcdef")
    rows = split(config).key.to_pylist()
    (tmp_path / "one" / "any.json").write_text(
        json.dumps({row["id"]: f"{row['set']} {row['question']}" for row in rows})
    )
    tables = []
    for name in ("four", "one"):
        given_config = with_settings(config, predictions=Predictions(str(tmp_path / name)).pin({}))
        (answers_job,) = answers_of(given_config)
        tables.append(answers_job.job.function(answers_job.job.config, ()))
        assert (name == "one") == ("repeats" in plan(given_config))
        assert "evasions" in plan(given_config)
    assert tables[0].equals(tables[1])
    assert "evasions" not in plan(TRAINED_HERE)


def test_predictions_are_pinned_by_content(tmp_path: Path) -> None:
    for name, part in parts().items():
        (tmp_path / f"{name}.json").write_text(
            json.dumps({question_of_part.id: "7" for question_of_part in part.questions})
        )
    pinned = Predictions(str(tmp_path)).pin({})
    moved = replace(pinned, path="elsewhere")
    score_keys = []
    for question_of_part in (pinned, moved, RETURNED_ANSWERS):
        score_keys.append(
            set(jobs_of_task(with_settings(TRAINED_HERE, predictions=question_of_part), "relational.score"))
        )
    assert score_keys[0] == score_keys[1] != score_keys[2]


def test_incomplete_predictions_are_refused(tmp_path: Path) -> None:
    for name in parts():
        (tmp_path / f"{name}.json").write_text("{}")
    config = with_settings(TRAINED_HERE, predictions=Predictions(str(tmp_path)).pin({}))
    with pytest.raises(ValueError, match="has no answer to 60 of 60 questions, the first of them 'facts-0000-0'"):
        plan(config)
    with pytest.raises(ValueError, match="examples is 9999; the data has 3000 such questions"):
        plan(with_settings(TRAINED_HERE, examples=9999))
    with pytest.raises(ValueError, match="predictions: expected a file of answers, got none"):
        plan(with_settings(TRAINED_HERE, system=Given()))
