"""A key covers exactly the values that the result depends on."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.errors import SpecError
from orchestrator.planning.identity import KEY_FORMAT, key_of, run_id
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


def test_1_and_1_0_are_equal() -> None:
    assert key(Config(rate=1)) == key(Config(rate=1.0))


def test_data_set_enters_key_by_content() -> None:
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
    assert len(keys) == 5


def test_key_is_sha256_of_task_config_and_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second, "__module__", "tasks.contract.job")  # else the file of the test is in the key
    content = [KEY_FORMAT, "one", 2, {"data": {"identity": "abc"}, "rate": 1.0}, ["a"]]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert key(Config(), ("a",), second) == hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Wider(Config):
    """The same configuration, with an additional field."""

    noise: float = 0.0


@dataclass(frozen=True)
class Holder:
    part: Wider | Config = Config()


def test_every_field_is_in_key() -> None:
    configs = (Config(), Wider(), Wider(noise=0.5))
    assert len({key(config) for config in configs}) == len(configs)
    assert len({key_of(Job(first, Holder(config)), ()) for config in configs}) == len(configs)


@dataclass(frozen=True)
class Extended(Config):
    """The same configuration, with a field that was added after the first stored results."""

    precision: str = field(default="float32", metadata={ADDED_LATER: True})


def test_later_field_enters_key_unless_default() -> None:
    assert key(Extended()) == key(Config())
    assert key(Extended(precision="bfloat16")) != key(Config())


@pytest.mark.parametrize("data", [Dataset("mnist")])
def test_data_set_without_digest_has_no_key(data: Dataset) -> None:
    with pytest.raises(SpecError, match="'mnist' has no digest yet"):
        key(Config(data=data))


def test_value_without_stable_form_is_refused() -> None:
    with pytest.raises(SpecError, match="finite"):
        key(Config(rate=math.nan))
    for config in (Undeclared({1, 2}), Undeclared(object()), object()):
        with pytest.raises(SpecError, match="stable form"):
            key_of(Job(first, config), ())


def test_run_name_is_independent_of_key_order() -> None:
    assert run_id("density", ["a", "b"], Config()) == run_id("density", ["b", "a"], Config())
    assert run_id("density", ["a"], Config()) != run_id("forgetting", ["a"], Config())
