"""A store is copied completely, byte for byte, and an interrupted copy continues."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.errors import Held, StoreError, Unwritable
from orchestrator.store import Store, lease, open_store, transfer
from orchestrator.store.local import LocalStore
from orchestrator.store.transfer import copy_store
from tests.support.s3 import BUCKET, Server
from tests.support.shell import Here

LOG = "runs/toys-1/events.jsonl"


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


@pytest.fixture
def origin(store: Store) -> Store:
    """A store with five results, a checkpoint, a traceback and a run."""
    for number in range(5):
        store.write(key(number), pa.table({"value": [number]}), {"task": "t"})
    store.write_state(key(1), b"a state")
    store.replace_file(f"outputs/{key(1)}/stdout", b"epoch 1\n")
    store.write_failure(key(9), "Traceback: \N{SNOWMAN}")
    for name, text in (
        ("run.json", b"{}"),
        ("plan.json", b"{}"),
        ("events.jsonl", b"1\n"),
        ("tables/a/1.parquet", b"x"),
    ):
        store.replace_file(f"runs/toys-1/{name}", text)
    for name in ("lease.json", "tables/a/.lock"):
        store.replace_file(f"runs/toys-1/{name}", b"of this machine")
    store.keep_run_file("toys-1", "way.json", b"stack")
    return store


@pytest.fixture(params=["folder", "bucket"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return open_store(tmp_path / "copy")
    request.getfixturevalue("s3")
    return open_store(f"s3://{BUCKET}/copy")


def contents(store: Store) -> dict[str, bytes]:
    folders = ("results", "states", "failures", "outputs", "runs")
    names = []
    for folder in folders:
        for name in store.files(folder):
            if not name.endswith(("lease.json", ".lock")):
                names.append(name)
    return {name: store.read_file(name) for name in names}


def test_copy_is_identical_and_second_copy_does_nothing(origin: Store, target: Store) -> None:
    first = copy_store(origin, target)
    assert contents(origin) == contents(target)
    assert first.copied == 13
    assert first.bytes == sum(map(len, contents(origin).values()))
    assert first.damaged == []
    second = copy_store(origin, target)
    assert second.copied == 0
    assert second.present == 13
    assert second.damaged == []
    assert list(target.verify(target.keys())) == []
    assert "runs/toys-1/lease.json" not in target.files("runs")


def test_interrupted_copy_continues(origin: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = open_store(tmp_path / "copy")
    monkeypatch.setattr(transfer, "JOURNEYS", 1)
    create = LocalStore.create_file
    created = list[str]()

    def full(store: LocalStore, name: str, data: bytes) -> bool:
        created.append(name)
        if len(created) == 3:
            raise Unwritable(f"cannot write {name}: No space left on device (ENOSPC)")
        return create(store, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "create_file", full)
        with pytest.raises(Unwritable, match="ENOSPC"):
            copy_store(origin, target)
    assert "runs/toys-1/run.json" not in contents(target)
    second_copy = copy_store(origin, target)  # a thread may have copied one more file
    assert second_copy.present >= 2
    assert second_copy.copied + second_copy.present == 13
    assert contents(origin) == contents(target)


@pytest.mark.parametrize("name", [f"results/{key(2)[:2]}/{key(2)}.arrow", f"states/{key(1)}.state"])
def test_damaged_file_is_named_and_not_copied(origin: Store, target: Store, name: str) -> None:
    data = bytearray(origin.read_file(name))
    data[len(data) // 2] ^= 1
    origin.replace_file(name, bytes(data))
    done = copy_store(origin, target)
    assert done.copied == 12
    assert done.damaged == [name]
    assert {*contents(origin)} - {name} == {*contents(target)}


def test_result_of_another_key_is_not_copied(origin: Store, target: Store) -> None:
    one, two = (f"results/{key(number)[:2]}/{key(number)}.arrow" for number in (2, 3))
    origin.replace_file(one, origin.read_file(two))
    assert [one] == copy_store(origin, target).damaged


def test_longer_output_replaces_a_shorter_one(origin: Store, target: Store) -> None:
    copy_store(origin, target)
    name = f"outputs/{key(1)}/stdout"
    target.replace_file(name, b"epoch 1\nepoch 2\n")
    assert copy_store(origin, target).copied == 0
    assert copy_store(target, origin).copied == 1
    assert origin.read_file(name) == b"epoch 1\nepoch 2\n"


def test_longer_log_of_the_origin_is_copied(origin: Store, target: Store) -> None:
    copy_store(origin, target)
    target.replace_file(LOG, b"1\n2\n3\n")
    assert copy_store(origin, target).copied == 0
    assert target.read_file(LOG) == b"1\n2\n3\n"
    origin.replace_file(LOG, b"1\n2\n3\n4\n")
    copy_store(origin, target)
    assert contents(origin) == contents(target)


def test_run_driven_in_the_target_is_not_replaced(origin: Store, tmp_path: Path) -> None:
    target = open_store(tmp_path / "copy")
    copy_store(origin, target)
    origin.replace_file(LOG, b"1\n2\n3\n4\n")
    driven = f"toys-1 has a driver in .*, process {os.getpid()}"
    with lease.acquire([target.folder("runs", "toys-1")]), pytest.raises(Held, match=driven):
        copy_store(origin, target)
    assert target.read_file(LOG) == b"1\n"


def test_copy_ends_if_bytes_read_back_differ(origin: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = open_store(tmp_path / "copy")
    read_file = LocalStore.read_file
    monkeypatch.setattr(
        LocalStore, "read_file", lambda store, name: read_file(store, name) + (b"!" if store is target else b"")
    )
    with pytest.raises(StoreError, match="differs from the bytes written"):
        copy_store(origin, target)


def test_store_is_copied_to_a_bucket_and_back(engram: Here, s3: Server) -> None:
    engram.env |= s3.env
    fields = ("toys", "parts=3", "--address", "none")
    run = engram.json("run", *fields)["run"]
    remote = f"s3://{BUCKET}/copy"
    assert engram.json("store", "copy", "engram-store", remote)["copies"][0]["copied"] > 0
    engram("store", "copy", remote, "back")
    repeated = engram.json("run", *fields, "--store", "back")
    assert repeated["run"] == run
    assert repeated["jobs"]["done"] == 0
    new_run = engram.json("run", "toys", "parts=2", "--address", "none", "--store", "back")["run"]
    assert "engram-store" in engram("store", "sync", "engram-store", "back").stdout
    assert tuple(engram.json("status", new_run)[name] for name in ("state", "run")) == ("finished", new_run)


def test_copying_errors_are_one_line(engram: Here) -> None:
    assert "there is no store at nowhere" in engram("store", "copy", "nowhere", "copy", code=2).stderr
    assert not (engram.folder / "copy").exists()
    engram("run", "toys", "parts=1", "--address", "none")
    assert "give two different stores" in engram("store", "copy", "engram-store", "engram-store", code=1).stderr
    assert "give a local path" in engram("store", "sync", "engram-store", "ftp://x", code=1).stderr
    path = engram.results()[0]
    path.write_bytes(path.read_bytes()[:-9])
    message = engram("store", "copy", "engram-store", "copy", code=1).stderr
    assert f"results/{path.parent.name}/{path.name} is damaged and was not copied" in message
