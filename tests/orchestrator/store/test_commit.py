"""A commit, interrupted at any call by a refusing disk, a dying process or a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.errors import Absent, Damaged
from orchestrator.executors.calls import Call, Done, Item, Lost, Outcome, Refused, perform
from orchestrator.store import WriteEffect, durability
from orchestrator.store.durability import Names
from orchestrator.store.local import LocalStore
from tasks.contract.job import Inputs, task
from tasks.worker import checkpoints
from tests.orchestrator.store.disk import Crash, Disk

# two of one folder, one of another
KEY = "ab" * 32
OTHER = "cd" * 32
NEAR = "ab" + "ef" * 31
STATE = b"where the training ended"
TABLE = pa.table({"value": [7]})


@dataclass(frozen=True)
class Number:
    value: int = 7


@task(version=1)
def train_with_state(config: Number, inputs: Inputs) -> pa.Table:
    checkpoints.leave(0, STATE)
    return pa.table({"value": [config.value]})


@pytest.fixture(autouse=True, params=Names, ids=lambda names: names.name.lower())
def names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Names:
    """Each kind of file system."""
    kind: Names = request.param
    monkeypatch.setattr(durability, "names_in", lambda _: kind)
    return kind


def commit(store: LocalStore) -> Outcome:
    item = Item(KEY, f"{__name__}:train_with_state", Number(), leaves=True)
    return perform(Call(1, "train_with_state", (item,)), store).outcomes[0]


def result_path(root: Path) -> Path:
    return root / "results" / KEY[:2] / f"{KEY}.arrow"


def with_empty_store(root: Path) -> None:
    LocalStore(root).write_failure(KEY, "it failed before")


def with_equal_result(root: Path) -> None:
    assert isinstance(commit(LocalStore(root)), Done)


def with_other_result(root: Path) -> None:
    with_equal_result(root)
    result_path(root).unlink()
    LocalStore(root).write(KEY, pa.table({"value": [8]}), {})


def with_damaged_result(root: Path) -> None:
    with_equal_result(root)
    os.truncate(result_path(root), 500)


def with_dangling_link(root: Path) -> None:
    with_equal_result(root)
    result_path(root).unlink()
    result_path(root).symlink_to("/nowhere")


def broken_call(number: int) -> Callable[[], OSError]:
    return lambda: OSError(number, os.strerror(number))


BEFORE = (with_empty_store, with_equal_result, with_other_result, with_damaged_result, with_dangling_link)
REFUSED = ((Names.FOLDER, errno.ENOSPC), (Names.FILE, errno.EIO))


def interrupted_commits(
    tmp_path: Path, before: Callable[[Path], None], error: Callable[[], BaseException], names: Names = Names.FOLDER
) -> list[tuple[Path, Outcome | None, Disk]]:
    """One commit per system call, each in a new store in which that call fails."""
    before(tmp_path / "before")
    tried = []
    while True:
        root = shutil.copytree(tmp_path / "before", tmp_path / str(len(tried)), symlinks=True)
        store = LocalStore(root)
        disk = Disk(root, names)
        disk.refuse(len(tried) + 1, error)
        outcome: Outcome | None = None
        with disk.watching(), contextlib.suppress(Crash):
            outcome = commit(store)
        if len(disk.calls) <= len(tried):  # it passed undisturbed
            assert isinstance(outcome, Done)
            assert len(tried) > 10
            return tried
        tried.append((root, outcome, disk))


def stored_result_values(store: LocalStore) -> list[int] | None:
    """The values of the stored result, or None if it is absent or damaged."""
    try:
        values: list[int] = store.read(KEY)["value"].to_pylist()
    except (Absent, Damaged):
        return None
    return values


def check_store(root: Path, before: Callable[[Path], None]) -> None:
    """Check that no result is wrong or lacks its state, and that the next commit succeeds."""
    first = [8] if before is with_other_result else [7]
    store = LocalStore(root)
    stored_values = stored_result_values(store)
    assert stored_values in (None, first, [7])
    if stored_values is not None:
        assert store.state(KEY) == STATE
    outcome = commit(store)
    assert isinstance(outcome, Done)
    assert (stored_values or [7]) == stored_result_values(store)
    assert store.state(KEY) == STATE
    assert store.failure(KEY) is None
    assert list(store.verify(store.keys())) == []


@pytest.mark.parametrize(
    ("names", "number"), [(Names.FOLDER, errno.ENOSPC), (Names.FILE, errno.EIO)], indirect=["names"]
)
@pytest.mark.parametrize("before", BEFORE)
def test_refused_commit_pauses_and_the_next_succeeds(
    tmp_path: Path, before: Callable[[Path], None], number: int
) -> None:
    for root, outcome, disk in interrupted_commits(tmp_path, before, broken_call(number)):
        assert isinstance(outcome, Done | Refused), (outcome, disk.calls[-3:])
        if isinstance(outcome, Done):
            assert stored_result_values(LocalStore(root)) is not None
        if not disk.refused.startswith("unlink"):
            assert os.listdir(root / "tmp") == [], disk.refused
        check_store(root, before)


@pytest.mark.parametrize("names", [Names.FILE], indirect=True)
@pytest.mark.parametrize("before", BEFORE)
def test_commit_without_file_handles_is_resent(tmp_path: Path, before: Callable[[Path], None]) -> None:
    for root, outcome, disk in interrupted_commits(tmp_path, before, broken_call(errno.EMFILE)):
        assert isinstance(outcome, Done | Lost), (outcome, disk.calls[-3:])
        check_store(root, before)


@pytest.mark.parametrize("before", BEFORE)
def test_crash_during_a_commit_leaves_no_torn_result(
    tmp_path: Path, before: Callable[[Path], None], names: Names
) -> None:
    for root, outcome, disk in interrupted_commits(tmp_path, before, Crash, names):
        assert outcome is None
        restored_folders = []
        for eager in (False, True):
            restored_folders.append(disk.after_power_cut(tmp_path / f"{root.name} {eager}", eager))
        check_store(root, before)
        for folder in restored_folders:
            if before is with_dangling_link and not (result_path(folder).exists() or result_path(folder).is_symlink()):
                continue  # a link was never synced here, so there is none
            check_store(folder, before)


# Durability of reported results


@pytest.fixture
def disk(tmp_path: Path, names: Names) -> Disk:
    (tmp_path / "disk").mkdir()
    return Disk(tmp_path / "disk", names)


def after(disk: Disk, eager: bool = False) -> LocalStore:
    """The store after a power cut."""
    restored_folder = disk.root.with_name(f"after {len(os.listdir(disk.root.parent))}")
    return LocalStore(disk.after_power_cut(restored_folder, eager) / "new" / "store", create=False)


def test_reported_results_survive_a_power_cut(disk: Disk) -> None:
    with disk.watching():
        store = LocalStore(disk.root / "new" / "store")
        for eager in (False, True):
            assert set() == after(disk, eager).keys()
        stored_keys = set()
        for key in (KEY, NEAR, OTHER):
            assert store.write(key, TABLE, {}) == WriteEffect.NEW
            stored_keys.add(key)
            for eager in (False, True):
                restored = after(disk, eager)
                assert stored_keys == restored.keys()
                assert list(restored.verify(stored_keys)) == []
        for data in (b"one", b"another"):
            store.write_state(KEY, data)
            assert data == after(disk).state(KEY)
        store.write_failure(KEY, "it failed")
        assert after(disk).failure(KEY) == "it failed"


def test_commit_syncs_no_more_than_necessary(disk: Disk, names: Names) -> None:
    with disk.watching():
        store = LocalStore(disk.root / "new" / "store")
        store.write(NEAR, TABLE, {})  # makes the folder
        disk.calls.clear()
        store.write(KEY, TABLE, {})
        write_calls = [call.split()[0] for call in disk.calls]
        disk.calls.clear()
        store.read(KEY)
        read_calls = [call.split()[0] for call in disk.calls]
    ordered = ["open", "writev", "fsync", "link", "close", "unlink"]
    assert (
        write_calls
        == {
            Names.FOLDER: [*ordered, "open", "fsync", "close"],
            Names.FILE: ["open", "writev", "link", "fsync", "close", "unlink"],
            Names.NOTHING: ordered,
        }[names]
    )
    assert read_calls == ["open", "read", "close"]


def test_result_found_stored_survives_writers_early_death(disk: Disk, names: Names) -> None:
    with disk.watching():
        LocalStore(disk.root / "new" / "store")
        disk.remembers = False  # except for the file's bytes, without which it would count as damaged
        LocalStore(disk.root / "new" / "store").write(KEY, TABLE, {})
        disk.remembers = True
        disk.keep(disk.root / "new" / "store" / "results" / KEY[:2] / f"{KEY}.arrow")
        assert ({KEY} if names is Names.NOTHING else set()) == after(disk).keys()
        assert LocalStore(disk.root / "new" / "store").write(KEY, TABLE, {}) == WriteEffect.SAME
        assert after(disk).keys() == {KEY}


def test_result_survives_the_early_death_of_folders_maker(
    disk: Disk,
) -> None:
    with disk.watching():
        LocalStore(disk.root / "new" / "store")
        disk.remembers = False
        LocalStore(disk.root / "new" / "store").write(NEAR, TABLE, {})
        disk.remembers = True
        assert LocalStore(disk.root / "new" / "store").write(KEY, TABLE, {}) == WriteEffect.NEW
        restored = after(disk)
        assert restored.read(KEY) == TABLE


def test_replacement_of_damaged_result_survives_power_cut(disk: Disk) -> None:
    with disk.watching():
        store = LocalStore(disk.root / "new" / "store")
        store.write(KEY, TABLE, {})
        os.truncate(result_path(Path(store.location)), 300)
        assert store.write(KEY, TABLE, {}) == WriteEffect.NEW
        restored = after(disk)
        assert restored.read(KEY) == TABLE
        assert len(list(Path(restored.location, "quarantine").glob("*.arrow"))) == 1


def test_run_files_survive_a_power_cut(disk: Disk) -> None:
    with disk.watching():
        store = LocalStore(disk.root / "new" / "store")
        store.folder("runs", "one")
        disk.keep(disk.root / "new" / "store")
        store.keep_run_file("one", "way.json", b"stack")
        assert after(disk).read_run_file("one", "way.json") == b"stack"
