"""`engram store gc` lists files that no run needs, and removes only those, only with `--delete`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.store import Store, open_store
from tests.support.s3 import BUCKET, Server
from tests.support.shell import Here

FIELDS = ("toys", "--address", "none", "parts=3")


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    return Here(tmp_path)


def store_of(engram: Here) -> Store:
    return open_store(str(engram.folder / "engram-store"), create=False)


def test_only_unneeded_files_are_deleted_on_request(engram: Here) -> None:
    one, two = (engram.json("run", *FIELDS, f"label={label}")["run"] for label in "ab")  # they share three parts
    store = store_of(engram)
    assert "every file is needed by a run" in engram("gc").stdout
    before = store.keys()
    shutil.rmtree(store.folder("runs") / one)
    store.write_state("ab" * 32, b"left by nobody")
    store.write_failure("cd" * 32, "it failed")
    (name,) = (name for name in engram.json("gc")["files"] if name.startswith("results/"))
    kinds = {"results": 1, "checkpoints": 1, "tracebacks": 1}
    garbage = engram.json("gc")
    assert kinds == {kind["kind"]: kind["files"] for kind in garbage["kinds"]}
    assert before == store.keys()
    assert "to remove them, use engram store gc --delete" in engram("gc").stdout
    assert engram.json("gc", "--delete")["deleted"]
    assert before - {name.rpartition("/")[2].removesuffix(".arrow")} == store.keys()
    assert "every file is needed by a run" in engram("gc").stdout
    assert engram.json("run", *FIELDS, "label=b")["jobs"]["done"] == 0
    assert engram.json("status")["run"] == two
    assert engram.json("status")["state"] == "finished"


def test_quarantined_files_are_garbage(engram: Here) -> None:
    engram("run", *FIELDS)
    path = engram.results()[0]
    path.write_bytes(path.read_bytes()[:-20])
    engram("verify", code=1)
    assert [kind["kind"] for kind in engram.json("gc", "--delete")["kinds"]] == ["damaged files set aside"]
    assert engram.json("gc")["files"] == []
    assert engram.json("run", *FIELDS)["jobs"]["done"] == 1


def test_results_despite_tolerated_failures_are_kept(engram: Here) -> None:
    engram("run", *FIELDS, "trouble=raise", "at=1", f"folder={engram.folder}", "--tolerate", "1", code=3)
    assert not [name for name in engram.json("gc")["files"] if name.startswith("results/")]


def test_unreadable_run_prevents_deletion(engram: Here) -> None:
    run = engram.json("run", *FIELDS)["run"]
    plan = engram.folder / "engram-store" / "runs" / run / "plan.json"
    plan.write_bytes(plan.read_bytes()[:-9])
    message = engram("gc", "--delete", code=1).stderr
    assert f"run {run} cannot be read, so the files it needs are unknown" in message
    assert len(engram.results()) == 4


@pytest.mark.slow
def test_garbage_in_a_bucket_is_deleted(s3: Server, tmp_path: Path) -> None:
    location = f"s3://{BUCKET}/audits"
    here = Here(tmp_path)
    here.env |= {**s3.env, "ENGRAM_RUNS": str(tmp_path / "engram-runs")}
    here("run", *FIELDS, "--store", location)
    store = open_store(location, create=False)
    store.write("ef" * 32, pa.table({"a": [1]}), {})
    assert here.json("gc", "--delete", "--store", location)["files"] == [f"results/ef/{'ef' * 32}.arrow"]
    assert len(store.keys()) == 4
    assert here.json("run", *FIELDS, "--store", location)["jobs"]["done"] == 0
