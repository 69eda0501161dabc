"""A choice is made once for all processes and interruptions of a run, and never for another run."""

from __future__ import annotations

import multiprocessing
import multiprocessing.pool
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError, Unwritable
from orchestrator.executors import strategy_cache
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store, open_store
from tests.support.s3 import BUCKET, Server

NAME = "training on NVIDIA H200/mlp1"


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "bucket":
        request.getfixturevalue("s3")
    opened = open_store(tmp_path / "store" if request.param == "folder" else f"s3://{BUCKET}/audits")
    for run in ("toys-1", "toys-2"):
        Journal(opened.folder("runs") / run).create({}, None)
    return opened


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    opened = open_store(tmp_path / "store")
    Journal(opened.folder("runs") / "toys-1").create({}, None)
    return opened


def never() -> Mapping[str, Any]:
    raise AssertionError("it was settled already")


def test_first_choice_is_kept_for_the_run(store: Store) -> None:
    settle = strategy_cache.choice_settler(store, "toys-1")
    assert settle(NAME, lambda: {"way": "graph", "rates": (1.5, 2)}) == {"way": "graph", "rates": [1.5, 2]}
    assert settle(NAME, never) == {"way": "graph", "rates": [1.5, 2]}
    reopened = strategy_cache.choice_settler(open_store(store.location), "toys-1")
    assert reopened(NAME, never) == {"way": "graph", "rates": [1.5, 2]}


def test_each_run_and_name_has_its_choice(store: Store) -> None:
    for run in ("toys-1", "toys-2"):
        for name in (NAME, NAME.lower(), "another"):
            assert {"for": run + name} == strategy_cache.choice_settler(store, run)(name, lambda: {"for": run + name})  # noqa: B023
    assert strategy_cache.choice_settler(store, "toys-1")("another", never) == {"for": "toys-1another"}


def test_sweep_and_cells_share_their_choices(store: Store) -> None:
    strategy_cache.choice_settler(store, "toys-1")(NAME, lambda: {"way": "graph"})
    assert strategy_cache.choice_settler(store, "toys-2", "toys-3", "toys-1")(NAME, never) == {"way": "graph"}
    assert strategy_cache.choice_settler(store, "toys-2")(NAME, lambda: {"way": "loop"}) == {"way": "loop"}
    assert strategy_cache.choice_settler(store, "toys-2", "toys-1")(NAME, never) == {"way": "loop"}


def test_first_stored_choice_wins(store: Store) -> None:
    def meanwhile() -> Mapping[str, Any]:
        strategy_cache.choice_settler(store, "toys-1")(NAME, lambda: {"way": "stack"})
        return {"way": "loop"}

    assert strategy_cache.choice_settler(store, "toys-1")(NAME, meanwhile) == {"way": "stack"}


def choice_of_process(argument: tuple[str, int]) -> Any:
    location, number = argument
    settle = strategy_cache.choice_settler(open_store(location, create=False), "toys-1")
    return settle(NAME, lambda: {"by": number})["by"]


def test_concurrent_processes_use_the_same_choice(store: Store) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        choices = pool.map(choice_of_process, [(store.location, number) for number in range(4)], chunksize=1)
    assert len(set(choices)) == 1
    assert choices[0] == choice_of_process((store.location, 99))


def test_damaged_choice_is_quarantined_and_made_again(folder: Store) -> None:
    store_folder = Path(folder.location)
    strategy_cache.choice_settler(folder, "toys-1")(NAME, lambda: {"way": "graph"})
    (path,) = (store_folder / "runs" / "toys-1" / "ways").iterdir()
    for number, text in enumerate([b"", b"{torn", b"[]", path.read_bytes().replace(b"graph", b"grape")]):
        path.write_bytes(text)
        assert {"way": number} == strategy_cache.choice_settler(folder, "toys-1")(NAME, lambda: {"way": number})  # noqa: B023
        assert strategy_cache.choice_settler(folder, "toys-1")(NAME, never) == {"way": number}
    aside = sorted((store_folder / "quarantine").glob("*.json"))
    assert [quarantined.read_bytes() for quarantined in aside][:3] == [b"", b"{torn", b"[]"]
    assert "its digest does not match its content" in aside[3].with_suffix(".txt").read_text()


def test_damaged_choice_in_a_bucket_is_replaced(s3: Server) -> None:
    store = open_store(f"s3://{BUCKET}/audits")
    strategy_cache.choice_settler(store, "toys-1")(NAME, lambda: {"way": "graph"})
    (name,) = s3.names("audits/runs/toys-1/ways")
    s3.flip(name, 100)
    assert strategy_cache.choice_settler(store, "toys-1")(NAME, lambda: {"way": "stack"}) == {"way": "stack"}
    assert len(s3.names("audits/quarantine")) == 2
    assert s3.names("audits/claims") == []


def test_unreadable_choice_is_made_again(folder: Store) -> None:
    path = Path(folder.location) / "runs" / "toys-1" / "ways" / strategy_cache.file_of(NAME)
    path.mkdir(parents=True)  # cannot be read as a file
    assert strategy_cache.choice_settler(folder, "toys-1")(NAME, lambda: {"way": "loop"}) == {"way": "loop"}


@pytest.mark.parametrize("hinder", [lambda runs: (runs / "ways").write_text("in the way"), lambda runs: runs.rmdir()])
def test_choice_that_cannot_be_stored_is_refused(folder: Store, hinder: Callable[[Path], Any]) -> None:
    runs = Path(folder.location) / "runs" / "toys-1"
    (runs / "run.json").unlink()
    hinder(runs)
    with pytest.raises(Unwritable, match=r"cannot write .*ways"):
        strategy_cache.choice_settler(folder, "toys-1")(NAME, lambda: {"way": "loop"})


def test_bucket_errors_name_their_cause(s3: Server) -> None:
    store = open_store(f"s3://{BUCKET}/audits")
    with s3.forbidding(), pytest.raises(StoreError, match="access is denied"):
        strategy_cache.choice_settler(store, "toys-1")(NAME, lambda: {"way": "loop"})


def test_file_name_describes_the_choice() -> None:
    assert strategy_cache.file_of(NAME).startswith("training-on-nvidia-h200-mlp1.")
    assert strategy_cache.file_of(NAME) != strategy_cache.file_of(NAME.lower())
    assert len(strategy_cache.file_of("x" * 1000)) < 100


def test_value_without_json_form_is_refused(folder: Store) -> None:
    with pytest.raises(TypeError):
        strategy_cache.choice_settler(folder, "toys-1")(NAME, lambda: {"way": object()})
