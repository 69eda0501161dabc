"""A key sees what bears on the result, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.errors import SpecError
from orchestrator.planning.identity import key_of, run_id
from tasks.contract.job import ADDED_LATER, Inputs, Job, task
from tasks.datasets.dataset import Dataset


@dataclass(frozen=True)
class Undeclared:
    anything: Any = None


@dataclass(frozen=True)
class Config:
    rate: float = 1.0
    data: Dataset = Dataset("digits", "abc")


@task(version=1, name="one")
def first(config: Config, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=2, name="one")
def second(config: Config, inputs: Inputs) -> pa.Table:
    return pa.table({})


def key(config: Config, inputs: tuple[str, ...] = (), function: Any = first) -> str:
    return key_of(Job(function, config), inputs)


def test_one_and_one_point_zero_are_one_value() -> None:
    assert key(Config(rate=1)) == key(Config(rate=1.0))


def test_data_enters_by_its_content_and_not_by_its_name() -> None:
    assert key(Config(data=Dataset("digits", "abc"))) == key(Config(data=Dataset("copy/of/digits", "abc")))
    assert key(Config(data=Dataset("digits", "abc"))) != key(Config(data=Dataset("digits", "abd")))


def test_version_config_and_inputs_are_in_the_key() -> None:
    keys = {
        key(Config()),
        key(Config(), function=second),
        key(Config(rate=2)),
        key(Config(), ("a",)),
        key(Config(), ("b",)),
    }
    assert 5 == len(keys)


def test_key_of_engrams_task_is_that_of_stored_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first, "__module__", "tasks.contract.job")  # a task in a file of the user's has its digest, too
    assert key(Config())[:8] == "f04de35c"


@dataclass(frozen=True)
class Grown(Config):
    """The same with fields that came later, after results had been stored."""

    noise: float = field(default=0.0, metadata={ADDED_LATER: True})
    beside: Config | None = field(default=None, metadata={ADDED_LATER: True})


@dataclass(frozen=True)
class Holding:
    part: Grown | Config = Config()


def test_a_field_that_was_added_later_is_in_the_key_only_where_it_is_not_at_its_default() -> None:
    default = key(Config(rate=3.0))
    assert default == key(Grown(rate=3.0)) == key(Grown(rate=3.0, noise=0, beside=None))
    keys = {default, key(Grown(rate=3.0, noise=0.5)), key(Grown(rate=3.0, beside=Config()))}
    assert 3 == len(keys)
    inside, within, changed = (key_of(Job(first, Holding(part)), ()) for part in (Config(), Grown(), Grown(noise=1.0)))
    assert inside == within != changed


@pytest.mark.parametrize("data", [Dataset("mnist")])
def test_a_data_set_without_digest_has_no_key(data: Dataset) -> None:
    with pytest.raises(SpecError, match="'mnist' has no digest yet"):
        key(Config(data=data))


def test_a_value_without_a_stable_form_is_refused() -> None:
    with pytest.raises(SpecError, match="finite"):
        key(Config(rate=math.nan))
    for config in (Undeclared({1, 2}), Undeclared(object()), object()):
        with pytest.raises(SpecError, match="stable form"):
            key_of(Job(first, config), ())


def test_a_run_is_named_after_its_plan_whatever_the_order() -> None:
    assert run_id("density", ["a", "b"], Config()) == run_id("density", ["b", "a"], Config())
    assert run_id("density", ["a"], Config()) != run_id("forgetting", ["a"], Config())
