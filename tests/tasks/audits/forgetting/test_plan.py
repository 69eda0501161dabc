"""The jobs that a config plans."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from orchestrator.planning.identity import canonical, run_id
from orchestrator.planning.plan import Plan
from orchestrator.spec.config_parts import plain
from orchestrator.spec.fields import coerce
from tasks.audits.forgetting import AUDIT, PRESETS, Forgetting, Target, plan, probes, split
from tasks.audits.forgetting.audited import Given, ReturnedTables, named_targets
from tasks.audits.forgetting.query_set import GUESSABLE, QuerySet
from tasks.audits.forgetting.target import NamedTarget
from tasks.contract.job import Job, marks
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Remainder
from tasks.external.model_file import Interface, ModelFile
from tasks.numerics import seeds
from tasks.training.unlearning_config import Distillation, GradientAscent, Method, RandomLabels, TuningOnKept
from tasks.worker.files import File
from tests.support.settings import with_settings

DIGITS = pin(Dataset("digits"))
ON_PHOTOS = pin(Dataset("digits-on-photos"))
smoke = PRESETS["smoke"]
assert isinstance(smoke, Forgetting)
SMOKE = replace(smoke, query=replace(smoke.query, data=DIGITS, first=1237), calibration=Part(ON_PHOTOS, 0, 200))
GIVEN_MODELS = Given(
    models=(ModelFile("theirs/model.pt", "a" * 64), ModelFile("others/model.pt", "b" * 64)),
    tables=ReturnedTables((File("theirs/said.csv", "c" * 64),)),
    interface=Interface(gives="probabilities", batch=7),
)


def targets_of(config: Forgetting) -> tuple[NamedTarget, ...]:
    assert config.audited is not None
    return named_targets(config.audited)


def config_of(root: Any) -> Any:
    assert isinstance(root, Job)
    return root.config


def inputs_of(root: Any) -> Sequence[Job]:
    assert isinstance(root, Job)
    return root.inputs


def keys(config: Forgetting) -> set[str]:
    return set(Plan.from_roots(plan(config)).jobs)


def test_measures_plan_their_tables() -> None:
    assert set(plan(SMOKE)) == {
        "decisions",
        "ratios",
        "distances",
        "confidences",
        "fits",
        "power",
        "baselines",
        "summary",
    }
    assert set(plan(with_settings(SMOKE, question="examples"))) == {"examples", "summary"}
    tables = plan(with_settings(SMOKE, class_images=True))
    assert set(tables) == {
        "decisions",
        "ratios",
        "distances",
        "confidences",
        "fits",
        "power",
        "baselines",
        "examples",
        "summary",
    }


def test_summary_reads_derived_tables_only() -> None:
    summary = plan(SMOKE)["summary"]
    assert isinstance(summary, Job)
    inputs = {marks(job.function).name for job in summary.inputs}
    assert inputs == {
        "forgetting.decisions",
        "forgetting.ratios",
        "forgetting.distances",
        "forgetting.power",
        "forgetting.baselines",
        "forgetting.fit",
    }


def test_linked_training_keeps_the_key() -> None:
    unbroken = Plan.from_roots(plan(with_settings(SMOKE, epochs=5, link=0)))
    linked = Plan.from_roots(plan(with_settings(SMOKE, epochs=5, link=2)))
    assert unbroken.roots == linked.roots
    assert dict(unbroken.after) == {}
    extra_jobs = []
    for key in linked.jobs.keys() - unbroken.jobs.keys():
        extra_jobs.append(linked.jobs[key])
    trainings = []
    for job in unbroken.jobs.values():
        if marks(job.function).name == "mixed.train":
            trainings.append(job)
    assert Counter({2: len(trainings), 4: len(trainings)}) == Counter(job.config.epochs for job in extra_jobs)


def test_spelling_of_a_part_does_not_change_keys() -> None:
    query = with_settings(SMOKE, {"query.examples": 0})
    parts = with_settings(SMOKE, outside=Part(DIGITS))
    assert keys(SMOKE) == keys(query) == keys(parts)


@pytest.mark.parametrize(
    ("fields", "trainings", "ratios"),
    [
        ({"seed": 1}, False, False),
        ({"epochs": 3}, False, False),
        ({"negligible": 0.2}, True, False),
        ({"permutations": 700}, True, False),
    ],
)
def test_field_changes_only_the_keys_it_affects(fields: dict[str, Any], trainings: bool, ratios: bool) -> None:
    before, after = Plan.from_roots(plan(SMOKE)), Plan.from_roots(plan(with_settings(SMOKE, fields)))
    for name, is_same in (("mixed.train", trainings), ("forgetting.decisions", ratios)):
        result = []
        for item in (before, after):
            result.append({key for key, job in item.jobs.items() if marks(job.function).name == name})
        assert is_same == (result[0] == result[1])


@pytest.mark.parametrize(
    "settings", [{"nonce_by": "drand round 4512345"}, {"audited": GIVEN_MODELS, "given.bound_by": "another notary"}]
)
def test_text_of_the_verdict_names_the_run(settings: dict[str, Any]) -> None:
    first = with_settings(
        SMOKE, {"audited": GIVEN_MODELS, "given.bound_by": "a notary"} if "audited" in settings else {}
    )
    second = with_settings(SMOKE, settings)
    assert keys(first) == keys(second)
    assert run_id("forgetting", sorted(keys(first)), first) != run_id("forgetting", sorted(keys(second)), second)


def test_given_models_and_tables_are_targets() -> None:
    config = with_settings(SMOKE, audited=GIVEN_MODELS)
    roots = plan(config)
    names = {"decisions", "ratios", "distances", "confidences", "fits", "power", "recognition", "baselines", "summary"}
    assert names == set(roots)
    # The decision also reads the number of owners of tables that would pass.
    inputs = []
    for item in (plan(SMOKE), roots):
        inputs.append({marks(job.function).name for job in inputs_of(item["decisions"])})
    asked_jobs = {marks(job.function).name for job in inputs_of(plan(SMOKE)["ratios"])}
    assert [asked_jobs, asked_jobs | {"forgetting.recognition"}] == inputs
    # Its tests use a separate stream of random numbers, the same one as the measure of power.
    assert seeds.derive(config.seed, "decisions") == config_of(roots["decisions"]).seed
    assert config_of(roots["decisions"]) == config_of(roots["power"]).decisions
    expected = [("model.pt", "model"), ("model.pt (2)", "model"), ("said.csv", "outputs")]
    assert expected == [(item.name, item.source) for item in targets_of(config)]
    assert [item.remembers for item in targets_of(config)] == [None] * 3
    ask_jobs = roots["confidences"]
    assert isinstance(ask_jobs, tuple)
    given_config = []
    for job in ask_jobs:
        if job.config.model.kind == "target":
            given_config.append(job.config)
    assert [(item.model.target, item.model.replicate) for item in given_config] == [(0, 0), (1, 0), (2, 0)]
    assert [item.file for item in given_config] == [*GIVEN_MODELS.models, None]
    # The interface to a model does not apply to a table.
    assert [GIVEN_MODELS.interface, GIVEN_MODELS.interface, Interface(gives="probabilities")] == [
        item.interface for item in given_config
    ]


def test_equal_target_names_get_numbers() -> None:
    config = with_settings(SMOKE, targets=(Target(query=0.12341), Target(query=0.12342)))
    assert [item.name for item in targets_of(config)] == ["0.1234 D_Q", "0.1234 D_Q (2)"]


def test_ratios_have_the_targets_in_order() -> None:
    assert targets_of(SMOKE) == config_of(plan(SMOKE)["ratios"]).targets
    assert [item.name for item in targets_of(SMOKE)] == ["D_C", "D_C + D_Q"]


def test_handout_without_control_set_is_the_query_set() -> None:
    ((name, pixels),) = probes(replace(SMOKE, query=QuerySet(DIGITS, 1237, control=None)))
    assert name == "query"
    assert np.array_equal(load(DIGITS).train_images[1237:], pixels)
    assert AUDIT.handout is not None
    assert AUDIT.handout.probes is probes


def test_handout_with_control_set_is_shuffled_with_repeats() -> None:
    ((name, pixels),) = probes(SMOKE)
    assert name.startswith("pictures-")
    assert len(pixels) == 220
    row_sets = {}
    for row, image in enumerate(load(DIGITS).train_images[1237:]):
        row_sets[image.tobytes()] = row
    order = [row_sets[image.tobytes()] for image in pixels]
    assert set(range(200)) == set(order)
    control_rows = set((SMOKE.query.query_part(SMOKE.seed).held_rows(load(DIGITS)) - 1237).tolist())  # type: ignore[union-attr]
    assert len(control_rows) == 100
    first = {row in control_rows for row in order[:20]}
    last = {row in control_rows for row in order[-20:]}
    assert {True, False} == first == last


def test_split_describes_every_image() -> None:
    expected = split(SMOKE)
    assert expected is not None
    ((name, pixels),) = probes(SMOKE)
    names = {}
    for position, image in enumerate(pixels):
        names[f"{name}/{position:06d}.png"] = image.tobytes()
    draws = SMOKE.query_part
    digits = load(DIGITS)
    assert isinstance(draws, Remainder)
    rows = expected.table.to_pylist()
    by_set = {}
    for kind in ("query", "control"):
        by_set[kind] = [row["row"] for row in rows if row["set"] == kind]
    assert by_set == {"query": draws.rows(digits).tolist(), "control": draws.held_rows(digits).tolist()}
    assert {digits.train_images[row["row"]].tobytes() == names[row["image"]] for row in rows} == {True}
    repeats = [(row["image"], row["again"]) for row in rows if row["again"]]
    assert (len(repeats), all(names[first] == names[second] for first, second in repeats)) == (20, True)
    secret = with_settings(SMOKE, secret="b1946ac92492d2347c62")
    assert {(row["data"], row["file"]) for row in rows} == {("digits", None)}
    assert expected.warning == GUESSABLE
    assert getattr(split(secret), "warning", None) == ""
    assert split(replace(SMOKE, query=QuerySet(DIGITS, control=None))) is None


def test_unlearning_methods_differ_in_keys() -> None:
    """Also after being read back from their stored form."""
    methods = (TuningOnKept(3, 0.01), GradientAscent(3, 0.01), RandomLabels(3, 0.01), Distillation(3))
    assert len({json.dumps(canonical(method), sort_keys=True) for method in methods}) == 4
    assert list(methods) == [coerce(plain(method), Method, "method") for method in methods]
