"""A commit on a disk that refuses at any point, in a process that dies at any point, before the power goes at any."""

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

KEY, OTHER, NEAR = "ab" * 32, "cd" * 32, "ab" + "ef" * 31  # two of one folder, one of another
STATE = b"where the training ended"
TABLE = pa.table({"value": [7]})


@dataclass(frozen=True)
class Number:
    value: int = 7


@task(version=1)
def trained(config: Number, inputs: Inputs) -> pa.Table:
    checkpoints.leave(0, STATE)
    return pa.table({"value": [config.value]})


@pytest.fixture(autouse=True, params=Names, ids=lambda names: names.name.lower())
def names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Names:
    """Each kind of file system."""
    kind: Names = request.param
    monkeypatch.setattr(durability, "names_in", lambda _: kind)
    return kind


def commit(store: LocalStore) -> Outcome:
    item = Item(KEY, f"{__name__}:trained", Number(), leaves=True)
    return perform(Call(1, "trained", (item,)), store).outcomes[0]


def place(root: Path) -> Path:
    return root / "results" / KEY[:2] / f"{KEY}.arrow"


def new(root: Path) -> None:
    LocalStore(root).write_failure(KEY, "it failed before")


def again(root: Path) -> None:
    assert isinstance(commit(LocalStore(root)), Done)


def other(root: Path) -> None:
    again(root)
    place(root).unlink()
    LocalStore(root).write(KEY, pa.table({"value": [8]}), {})


def damaged(root: Path) -> None:
    again(root)
    os.truncate(place(root), 500)


def no_file(root: Path) -> None:
    again(root)
    place(root).unlink()
    place(root).symlink_to("/nowhere")


def broken(number: int) -> Callable[[], OSError]:
    return lambda: OSError(number, os.strerror(number))


BEFORE = (new, again, other, damaged, no_file)
REFUSED = ((Names.FOLDER, errno.ENOSPC), (Names.FILE, errno.EIO))


def trials(
    tmp_path: Path, before: Callable[[Path], None], error: Callable[[], BaseException], names: Names = Names.FOLDER
) -> list[tuple[Path, Outcome | None, Disk]]:
    """A commit for each of its system calls, in a store of its own where that one goes wrong."""
    before(tmp_path / "before")
    tried = []
    while True:
        root = shutil.copytree(tmp_path / "before", tmp_path / str(len(tried)), symlinks=True)
        store, disk = LocalStore(root), Disk(root, names)
        disk.refuse(len(tried) + 1, error)
        outcome: Outcome | None = None
        with disk.watching(), contextlib.suppress(Crash):
            outcome = commit(store)
        if len(disk.calls) <= len(tried):  # it passed undisturbed
            assert isinstance(outcome, Done)
            assert len(tried) > 10
            return tried
        tried.append((root, outcome, disk))


def found(store: LocalStore) -> list[int] | None:
    """The values of the result that is there; None where there is none, or it is found damaged."""
    try:
        values: list[int] = store.read(KEY)["value"].to_pylist()
    except (Absent, Damaged):
        return None
    return values


def whole(root: Path, before: Callable[[Path], None]) -> None:
    """No result is wrong, none is there without its state, and the next commit lands."""
    first = [8] if before is other else [7]
    store = LocalStore(root)
    there = found(store)
    assert there in (None, first, [7])
    if there is not None:
        assert store.state(KEY) == STATE
    outcome = commit(store)
    assert isinstance(outcome, Done)
    assert (there or [7]) == found(store)
    assert store.state(KEY) == STATE
    assert store.failure(KEY) is None
    assert list(store.verify(store.keys())) == []


@pytest.mark.parametrize(
    ("names", "number"), [(Names.FOLDER, errno.ENOSPC), (Names.FILE, errno.EIO)], indirect=["names"]
)
@pytest.mark.parametrize("before", BEFORE)
def test_a_commit_refused_at_any_call_is_a_pause_and_the_next_one_lands(
    tmp_path: Path, before: Callable[[Path], None], number: int
) -> None:
    for root, outcome, disk in trials(tmp_path, before, broken(number)):
        assert isinstance(outcome, Done | Refused), (outcome, disk.calls[-3:])
        if isinstance(outcome, Done):
            assert found(LocalStore(root)) is not None
        if not disk.refused.startswith("unlink"):
            assert os.listdir(root / "tmp") == [], disk.refused
        whole(root, before)


@pytest.mark.parametrize("names", [Names.FILE], indirect=True)
@pytest.mark.parametrize("before", BEFORE)
def test_a_commit_short_of_files_at_any_call_is_sent_again(tmp_path: Path, before: Callable[[Path], None]) -> None:
    for root, outcome, disk in trials(tmp_path, before, broken(errno.EMFILE)):
        assert isinstance(outcome, Done | Lost), (outcome, disk.calls[-3:])
        whole(root, before)


@pytest.mark.parametrize("before", BEFORE)
def test_a_process_that_dies_or_a_power_cut_at_any_call_of_a_commit_tears_nothing(
    tmp_path: Path, before: Callable[[Path], None], names: Names
) -> None:
    for root, outcome, disk in trials(tmp_path, before, Crash, names):
        assert outcome is None
        left = [disk.after_power_cut(tmp_path / f"{root.name} {eager}", eager) for eager in (False, True)]
        whole(root, before)
        for folder in left:
            if before is no_file and not (place(folder).exists() or place(folder).is_symlink()):
                continue  # a link was never synced here, so there is none
            whole(folder, before)


# What was reported


@pytest.fixture
def disk(tmp_path: Path, names: Names) -> Disk:
    (tmp_path / "disk").mkdir()
    return Disk(tmp_path / "disk", names)


def after(disk: Disk, eager: bool = False) -> LocalStore:
    """The store after a power cut."""
    place = disk.root.with_name(f"after {len(os.listdir(disk.root.parent))}")
    return LocalStore(disk.after_power_cut(place, eager) / "new" / "store", create=False)


def test_what_was_reported_as_stored_outlives_a_power_cut(disk: Disk) -> None:
    with disk.watching():
        store = LocalStore(disk.root / "new" / "store")
        for eager in (False, True):
            assert set() == after(disk, eager).keys()
        stored = set()
        for key in (KEY, NEAR, OTHER):
            assert store.write(key, TABLE, {}) == WriteEffect.NEW
            stored.add(key)
            for eager in (False, True):
                left = after(disk, eager)
                assert stored == left.keys()
                assert list(left.verify(stored)) == []
        for data in (b"one", b"another"):
            store.write_state(KEY, data)
            assert data == after(disk).state(KEY)
        store.write_failure(KEY, "it failed")
        assert after(disk).failure(KEY) == "it failed"


def test_a_commit_waits_for_the_disk_no_more_than_its_file_system_asks(disk: Disk, names: Names) -> None:
    with disk.watching():
        store = LocalStore(disk.root / "new" / "store")
        store.write(NEAR, TABLE, {})  # makes the folder
        disk.calls.clear()
        store.write(KEY, TABLE, {})
        written = [call.split()[0] for call in disk.calls]
        disk.calls.clear()
        store.read(KEY)
        read = [call.split()[0] for call in disk.calls]
    ordered = ["open", "writev", "fsync", "link", "close", "unlink"]
    assert (
        written
        == {
            Names.FOLDER: [*ordered, "open", "fsync", "close"],
            Names.FILE: ["open", "writev", "link", "fsync", "close", "unlink"],
            Names.NOTHING: ordered,
        }[names]
    )
    assert read == ["open", "read", "close"]


def test_a_result_found_stored_outlives_a_power_cut_though_its_writer_died_before_it_was_on_the_disk(
    disk: Disk, names: Names
) -> None:
    with disk.watching():
        LocalStore(disk.root / "new" / "store")
        disk.remembers = False  # but the file's own bytes, without which nobody would take it for sound
        LocalStore(disk.root / "new" / "store").write(KEY, TABLE, {})
        disk.remembers = True
        disk.keep(disk.root / "new" / "store" / "results" / KEY[:2] / f"{KEY}.arrow")
        assert ({KEY} if names is Names.NOTHING else set()) == after(disk).keys()
        assert LocalStore(disk.root / "new" / "store").write(KEY, TABLE, {}) == WriteEffect.SAME
        assert {KEY} == after(disk).keys()


def test_a_result_outlives_a_power_cut_though_the_maker_of_its_folder_died_before_that_was_on_the_disk(
    disk: Disk,
) -> None:
    with disk.watching():
        LocalStore(disk.root / "new" / "store")
        disk.remembers = False
        LocalStore(disk.root / "new" / "store").write(NEAR, TABLE, {})
        disk.remembers = True
        assert LocalStore(disk.root / "new" / "store").write(KEY, TABLE, {}) == WriteEffect.NEW
        left = after(disk)
        assert left.read(KEY) == TABLE


def test_a_result_that_took_a_damaged_ones_place_outlives_a_power_cut(disk: Disk) -> None:
    with disk.watching():
        store = LocalStore(disk.root / "new" / "store")
        store.write(KEY, TABLE, {})
        os.truncate(place(Path(store.location)), 300)
        assert store.write(KEY, TABLE, {}) == WriteEffect.NEW
        left = after(disk)
        assert left.read(KEY) == TABLE
        assert len(list(Path(left.location, "quarantine").glob("*.arrow"))) == 1


def test_what_a_run_keeps_outlives_a_power_cut(disk: Disk) -> None:
    with disk.watching():
        store = LocalStore(disk.root / "new" / "store")
        store.folder("runs", "one")
        disk.keep(disk.root / "new" / "store")
        store.keep_run_file("one", "way.json", b"stack")
        assert after(disk).read_run_file("one", "way.json") == b"stack"
