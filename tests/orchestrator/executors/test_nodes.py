"""If a node cannot do a run's work, the run is refused with one line that names the node and the remedy."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ClusterError
from orchestrator.executors import nodes, open_executor
from orchestrator.executors import ray as ray_executor
from orchestrator.executors.nodes import NODE_GONE, Question, answer_question, check_nodes, differences
from orchestrator.executors.ray import RayExecutor
from orchestrator.spec.resolve import pin_one, pinned_data
from orchestrator.store import Store, open_store
from tasks.datasets.dataset import Dataset
from tests.orchestrator.executors.jobs import call
from tests.orchestrator.executors.test_executors import drain
from tests.support.settings import with_settings

NAMES = {"aa": "one (10.0.0.1)", "bb": "two (10.0.0.2)"}
DIGITS = pin_one(Dataset("digits"), {})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


def ask_each(change: Callable[[str, Question], Question] = lambda _, question: question) -> Any:
    """Answer for every node in this process, after `change` modified the question."""

    def ask(question: bytes) -> Mapping[str, str]:
        received: Question = pickle.loads(question)
        result = {}
        for node in NAMES:
            result[node] = answer_question(pickle.dumps(change(node, received)), node)
        return result

    return ask


def refusal(store: Store, ask: Any, data: tuple[Any, ...] = ()) -> str:
    with pytest.raises(ClusterError) as refused:
        check_nodes(NAMES, store, data, ask)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_complete_nodes_pass_and_leave_no_states(store: Store) -> None:
    check_nodes(NAMES, store, (DIGITS,), ask_each())
    assert set() == store.states()


def test_other_code_is_refused_with_a_remedy(store: Store) -> None:
    message = refusal(
        store, ask_each(lambda _, received: replace(received, identity={**received.identity, "torch": "1.0"}))
    )
    assert message.startswith("node one (10.0.0.1) has different code: torch ")
    assert "(here 1.0); install the same versions there" in message
    assert message.endswith("(and 1 more of 2 nodes)")
    assert set() == store.states()


def test_other_store_is_refused(store: Store, tmp_path: Path) -> None:
    other_store = open_store(tmp_path / "other").location
    message = refusal(
        store, ask_each(lambda node, received: replace(received, store=other_store) if node == "bb" else received)
    )
    assert f"node two (10.0.0.2) has a different store at {other_store}" in message


def test_missing_store_is_refused(store: Store, tmp_path: Path) -> None:
    message = refusal(store, ask_each(lambda _, received: replace(received, store=str(tmp_path / "absent"))))
    assert "cannot use the store" in message


def test_missing_or_different_data_are_refused(store: Store) -> None:
    for data in (Dataset("digits", "0" * len(DIGITS.digest)), Dataset("/not/there", "0" * 64)):
        assert "node one (10.0.0.1) lacks data: " in refusal(store, ask_each(), (data,))


def test_unanswered_check_is_refused(store: Store) -> None:
    everyone = ask_each()
    assert "node two (10.0.0.2) did not answer" in refusal(store, lambda question: {"aa": everyone(question)["aa"]})
    assert "cannot find there" in refusal(store, lambda _: dict.fromkeys(NAMES, ""))


def test_departed_node_is_no_problem(store: Store) -> None:
    check_nodes(NAMES, store, (), lambda question: {**ask_each()(question), "bb": NODE_GONE})


def test_one_sided_versions_differ() -> None:
    assert (
        differences({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == "b not installed (here 2), c 3 (here not installed)"
    )
    assert differences({"a": "1"}, {"a": "1"}) == ""


def test_pinned_data_of_configs_are_listed_once() -> None:
    from tasks.audits.unique_feature import UniqueFeature

    config = with_settings(UniqueFeature(), data=DIGITS)
    assert pinned_data([config, replace(config, seed=7)]) == [DIGITS]
    assert pinned_data([with_settings(UniqueFeature(), data=Dataset("digits"))]) == []


@pytest.mark.slow
def test_real_cluster_nodes_are_checked(ray_cluster: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    open_executor(ray_cluster.address, store, data=lambda: (DIGITS,)).close()
    assert set() == store.states()
    monkeypatch.setattr(nodes, "identity", lambda: {"engram's source": "another"})
    with pytest.raises(ClusterError, match=r"node .* has different code: engram's source \w{12} \(here another\)"):
        open_executor(ray_cluster.address, store)


@pytest.mark.slow
def test_worker_with_other_code_computes_nothing(
    ray_cluster: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a node that joins later with other code: its results would be stored as valid ones."""
    monkeypatch.setattr(ray_executor, "identity", lambda: {"engram's source": "another"})
    executor = RayExecutor(store.location, address=ray_cluster.address)
    try:
        executor.submit(call("double", 1.0))
        with pytest.raises(ClusterError, match="a worker cannot compute"):
            drain(executor, 1)
        assert set() == store.keys()
    finally:
        executor.close()
