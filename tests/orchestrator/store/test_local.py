import errno
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import orchestrator
from orchestrator.errors import Absent, Damaged, StoreError, Unreadable, Unwritable
from orchestrator.store import WriteEffect, open_store
from orchestrator.store.entry import CorruptError
from orchestrator.store.local import LocalStore
from tests.support.waiting import HANGING

ROOT = Path(orchestrator.__file__).parents[1]


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def table(name: object) -> pa.Table:
    """A table with values specific to its name."""
    numbers = random.Random(str(name))
    return pa.table({"name": [str(name)] * 20, "value": [numbers.random() for _ in range(20)]})


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def put(store: LocalStore, name: object) -> Path:
    assert store.write(key(name), table(name), {"task": "t", "version": 1}) == WriteEffect.NEW
    return result_path(store, name)


def result_path(store: LocalStore, name: object) -> Path:
    return Path(store.location, "results", key(name)[:2], f"{key(name)}.arrow")


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def files_in(store: LocalStore, folder: str, suffix: str = ".arrow") -> list[Path]:
    return sorted(Path(store.location, folder).rglob(f"*{suffix}"))


def refused_to_open(path: Path, number: int) -> Callable[..., Any]:
    """A version of `os.open` that the system refuses for one file."""
    real = os.open

    def refuse(file: Any, *arguments: Any, **more: Any) -> Any:
        if str(file) == str(path):
            raise OSError(number, os.strerror(number), str(path))
        return real(file, *arguments, **more)

    return refuse


def python(script: str, *arguments: object, around: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*around, sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=HANGING)
    assert process.returncode == 0, err
    return out


# Reading and writing


def test_repeated_write_of_a_result_is_harmless(store: LocalStore) -> None:
    path = put(store, "a")
    before = path.stat()
    chunked = pa.concat_tables([table("a").slice(0, 3), table("a").slice(3)])
    assert store.write(key("a"), chunked, {"another": "record"}) == WriteEffect.SAME
    assert before.st_ino == path.stat().st_ino
    assert before.st_mtime_ns == path.stat().st_mtime_ns
    assert files_in(store, "conflicts") == []


def together(count: int, act: Callable[[int], object]) -> None:
    """Fork `count` processes, call `act(number)` in all at the same moment, and check that they succeed."""
    wait, go = os.pipe()
    children = []
    for number in range(count):
        children.append(os.fork())
        if not children[-1]:
            os.close(go)
            os.read(wait, 1)
            status = 1
            try:
                act(number)
                status = 0
            finally:
                os._exit(status)
    os.close(wait)
    os.close(go)
    assert [0] * count == [os.waitpid(child, 0)[1] for child in children]


WRITE = """
import sys
from test_local import *
folder, alike = Path(sys.argv[1]), sys.argv[2] == "True"
store = LocalStore(folder / "store")
def write(number):
    became = [store.write(key(n), table(n if alike else f"{n} {number}"), {}) for n in range(40)]
    (folder / str(number)).write_text(str(became.count(WriteEffect.NEW)))
together(4, write)
"""


@pytest.mark.parametrize("alike", [True, False])
def test_first_of_concurrent_writers_wins(tmp_path: Path, alike: bool) -> None:
    ended(python(WRITE, tmp_path, alike))
    store = LocalStore(tmp_path / "store")
    assert sum(int((tmp_path / str(number)).read_text()) for number in range(4)) == 40
    assert list(store.verify(key(n) for n in range(40))) == []
    assert (0 if alike else 120) == len(files_in(store, "conflicts"))


# Damage


def test_damaged_result_is_quarantined_with_a_note(store: LocalStore) -> None:
    path = put(store, "a")
    flip(path, 3000)
    bad = path.read_bytes()
    with pytest.raises(Damaged, match="do not match"):
        store.read(key("a"))
    [quarantined], [note] = files_in(store, "quarantine"), files_in(store, "quarantine", ".txt")
    assert bad == quarantined.read_bytes()
    assert str(path) in note.read_text()
    assert "do not match" in note.read_text()


def test_entry_other_than_a_file_is_quarantined(store: LocalStore) -> None:
    result_path(store, "a").mkdir(parents=True)
    with pytest.raises(Damaged, match="Is a directory"):
        store.read(key("a"))
    for target, why in (
        ("nowhere", "a link to nowhere, which does not exist"),
        (f"{key('a')}.arrow", "symbolic links"),
    ):
        put(store, "a")
        result_path(store, "a").unlink()
        result_path(store, "a").symlink_to(target)
        with pytest.raises(Damaged, match=f"{why}.*quarantine"):
            store.read(key("a"))
    result_path(store, "a").symlink_to("nowhere")
    put(store, "a")
    assert table("a") == store.read(key("a"))
    assert len(os.listdir(Path(store.location, "quarantine"))) // 2 == 4  # each with a note, and the lock


def test_unreadable_result_is_kept_and_not_damaged(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(store, "a")
    denied = refused_to_open(path, errno.EACCES)
    monkeypatch.setattr(os, "open", denied)
    for read_method in (store.read, store.record):
        with pytest.raises(Unreadable, match=f"cannot read {path}: Permission denied"):
            read_method(key("a"))
    assert [(name, str(error)) for name, error in store.verify([key("a")])] == [
        (key("a"), f"cannot read {path}: Permission denied")
    ]
    with pytest.raises(Unwritable, match=rf"cannot write {path}: Permission denied \(EACCES\)"):
        store.write(key("a"), table("a"), {})
    monkeypatch.setattr(os, "open", refused_to_open(path, errno.EMFILE))
    with pytest.raises(OSError, match="Too many open files"):
        store.write(key("a"), table("a"), {})
    monkeypatch.undo()
    assert table("a") == store.read(key("a"))
    assert files_in(store, "quarantine") == []


def test_unreadable_record_is_not_called_damaged(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(store, "a")

    def denied(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(pa, "OSFile", denied)
    with pytest.raises(Unreadable, match=f"cannot read {path}: Permission denied"):
        store.record(key("a"), check=False)


def test_unreadable_result_list_is_an_error(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(folder: object) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(Unreadable, match=r"cannot read .*results: Permission denied"):
        store.keys()


def test_concurrent_repair_never_quarantines_sound_results(store: LocalStore) -> None:
    rounds = 30
    sides = 4
    barrier = threading.Barrier(sides + 1)
    odd = []

    def heal() -> None:
        for _ in range(rounds):
            barrier.wait()
            try:
                store.read(key("a"))
            except (Absent, Damaged):
                odd.extend({store.write(key("a"), table("a"), {})} - {WriteEffect.NEW, WriteEffect.SAME})
            barrier.wait()

    threads = [threading.Thread(target=heal) for _ in range(sides)]
    for thread in threads:
        thread.start()
    put(store, "a")
    for number in range(rounds):
        flip(result_path(store, "a"), 1000 + number)
        barrier.wait()
        barrier.wait()
        assert table("a") == store.read(key("a"))
    for thread in threads:
        thread.join()
    assert odd == []
    assert len(files_in(store, "quarantine")) == rounds


def test_late_damage_report_keeps_the_repaired_result(store: LocalStore, tmp_path: Path) -> None:
    path = put(store, "a")

    def find_late() -> None:
        with store._checked_bytes(key("a")):
            path.rename(tmp_path / "set aside by another")
            put(store, "a")
            raise CorruptError("found in the earlier content")

    with pytest.raises(Damaged):
        find_late()
    assert table("a") == store.read(key("a"))


def test_run_file_is_quarantined_only_if_unchanged(store: LocalStore) -> None:
    store.folder("runs", "one")
    store.keep_run_file("one", "way.json", b"odd")
    path = Path(store.location, "runs", "one", "ways", "way.json")
    path.write_bytes(b"mended by another")
    store.set_aside_run_file("one", "way.json", b"odd", "it makes no sense")
    assert store.read_run_file("one", "way.json") == b"mended by another"
    assert files_in(store, "quarantine", ".json") == []
    store.set_aside_run_file("one", "way.json", b"mended by another", "it makes no sense")
    assert store.read_run_file("one", "way.json") is None
    assert [quarantined.read_bytes() for quarantined in files_in(store, "quarantine", ".json")] == [
        b"mended by another"
    ]


# Making and opening a store


MAKE = """
import sys
from test_local import *
for point in range(4):
    folder = Path(sys.argv[1], "new", str(point))
    together(6, lambda number: LocalStore(folder).write(key(number), table(number), {}))
    assert 6 == sound(LocalStore(folder, create=False), range(6))
    assert not list(folder.rglob("*.unfinished"))
"""


def test_many_processes_can_create_a_store_concurrently(tmp_path: Path) -> None:
    ended(python(MAKE, tmp_path))


def test_incomplete_store_folder_is_completed(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()  # like a new disk
    (tmp_path / "123.abc.unfinished").write_text('{"form')  # like a killed process
    put(LocalStore(tmp_path), "a")
    (tmp_path / "quarantine").rmdir()
    (tmp_path / "tmp").rmdir()
    put(LocalStore(tmp_path), "b")


def test_file_cannot_be_a_stores_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(StoreError, match="not a folder"):
        open_store(tmp_path / "thesis.tex")
    with pytest.raises(StoreError, match="Not a directory"):
        open_store(tmp_path / "thesis.tex" / "below")


def test_file_uri_opens_a_local_store(tmp_path: Path) -> None:
    assert str(tmp_path / "a b") == open_store(f"file://{tmp_path}/a%20b").location
    for uri in ("gs://bucket", "https://bucket/store", "file://host/path"):
        with pytest.raises(StoreError, match=f"{uri}: give a local path"):
            open_store(uri)


def test_dangling_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for path in ("link", "link/below"):
        with pytest.raises(StoreError, match=f"link is a link to {tmp_path / 'gone'}, which does not exist"):
            open_store(tmp_path / path)
    store = open_store(tmp_path / "store")
    (tmp_path / "store" / "results").rmdir()
    (tmp_path / "store" / "results").symlink_to(tmp_path / "gone")
    with pytest.raises(Unwritable, match="results is a link to"):
        open_store(store.location)
    (tmp_path / "gone").mkdir()
    put(LocalStore(tmp_path / "link"), "a")


def test_location_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "store") == open_store("store").location


def test_unfinished_files_are_ignored_and_finally_removed(store: LocalStore) -> None:
    old, new = (Path(store.location, "tmp", f"{name}.unfinished") for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half a res")
    os.utime(old, (time.time() - 3700,) * 2)
    assert set() == LocalStore(Path(store.location)).keys()
    assert [new] == files_in(store, "tmp", ".unfinished")


# Failures, digests, folders


def test_damaged_digest_cache_counts_as_empty(store: LocalStore) -> None:
    store.digests()["mnist"] = "a" * 64
    path = Path(store.location, "digests.json")
    data = path.read_bytes()
    for bad in (b"", b"[]", b"\xff", data[:-3], data.replace(b"aa", b"ab", 1)):
        path.write_bytes(bad)
        assert dict(store.digests()) == {}
    store.digests()["digits"] = "bb"
    assert dict(store.digests()) == {"digits": "bb"}


# A disk that refuses, a writer that dies


def sound(store: LocalStore, names: range) -> int:
    """The number of these results in the store. Each is checked to be complete and correct."""
    stored_names = [name for name in names if key(name) in store]
    for name in stored_names:
        assert table(name) == store.read(key(name))
    assert {key(name) for name in stored_names} == store.keys()
    return len(stored_names)


LIMITED = """
import random, resource, sys
from test_local import *
from pathlib import Path
generator = random.Random(1)
for point in range(20):
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    store = LocalStore(Path(sys.argv[1], str(point)))
    limit = generator.randrange(1200)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        store.write(key(point), table(point), {})
        raise SystemExit(f"a limit of {limit} bytes was not seen")
    except Unwritable as error:
        assert "EFBIG" in str(error) and "bytes needed" in str(error), error
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert [] == os.listdir(Path(store.location, "tmp")) and not store.keys()
    put(store, point)
"""


def test_interrupted_write_leaves_no_file(tmp_path: Path) -> None:
    ended(python(LIMITED, tmp_path))


FULL = """
import json, sys
from collections import Counter
from test_local import *
NAMES = range(30)
seen = Counter()
for point in range(40):
    disk = Path(sys.argv[1], str(point))
    disk.mkdir()
    # Room for bytes ends in half of the rounds, room for names in the other half; none at all at first, so that
    # making the store fails too.
    limit = f"size={4096 * (1 + point)}" if point % 2 else f"nr_inodes={3 + point + point // 3}"
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", limit, "none", disk])
    (disk / "ballast").write_bytes(bytes(2 * 4096 if point % 2 else 0))
    stored = 0
    for attempt in range(2):
        try:
            store = LocalStore(disk / "store")
            stored = sound(store, NAMES)
            for name in NAMES:
                if key(name) not in store:
                    put(store, name)
            seen["finished"] += 1
        except Unwritable as error:
            assert attempt == 0 and "ENOSPC" in str(error) and "cannot write" in str(error), error
            assert not list(disk.rglob("*.unfinished"))
            seen["while writing" if (disk / "store/tmp").exists() else "while making"] += 1
            before = sum(1 for _ in disk.rglob("*.arrow"))
            subprocess.check_call(["mount", "-o", "remount,size=64m,nr_inodes=100000", disk])
            continue
        break
    assert len(NAMES) == sound(store, NAMES)
    if attempt:
        assert before == stored, (before, stored)
    assert [] == files_in(store, "quarantine")
print(json.dumps(seen))
"""

READ_ONLY = """
import sys
from test_local import *
disk = Path(sys.argv[1])
subprocess.check_call(["mount", "-t", "tmpfs", "none", disk])
store = LocalStore(disk / "store")
put(store, "sound")
flip(put(store, "damaged"), 3000)
subprocess.check_call(["mount", "-o", "remount,ro", disk])
store = LocalStore(disk / "store", create=False)
assert table("sound") == store.read(key("sound"))
for act in (lambda: put(store, "new"), lambda: store.read(key("damaged")), lambda: store.write_failure(key("x"), "x"),
            lambda: store.folder("runs"), lambda: LocalStore(disk / "another")):
    try:
        act()
        raise SystemExit("a read-only disk was not seen")
    except Unwritable as error:
        assert "EROFS" in str(error), error
[(name, wrong)] = store.verify([key("sound"), key("damaged")])
assert name == key("damaged") and "damaged" in str(wrong) and "cannot be set aside" in str(wrong), wrong
store.digests()["known"] = "only for now"
"""


def on_a_disk_of_its_own(script: str, folder: Path) -> str:
    """The output of a script in a private mount namespace, in which it may mount small disks."""
    for around in (("unshare", "-m"), ("unshare", "-rm")):
        try:
            probe = subprocess.run([*around, "mount", "-t", "tmpfs", "none", str(folder)], capture_output=True)
        except FileNotFoundError:
            break
        if probe.returncode == 0:
            return ended(python(script, folder, around=around))
    pytest.skip("no small disk can be mounted here (unshare -m, mount -t tmpfs)")


def test_full_disk_pauses_at_any_point(tmp_path: Path) -> None:
    endings = Counter(json.loads(on_a_disk_of_its_own(FULL, tmp_path)))
    assert endings["finished"] == 40
    assert endings["while making"] >= 3
    assert endings["while writing"] >= 20


def test_read_only_store_is_readable(tmp_path: Path) -> None:
    on_a_disk_of_its_own(READ_ONLY, tmp_path)


def test_vanished_store_is_not_recreated(store: LocalStore, tmp_path: Path) -> None:
    put(store, "a")
    Path(store.location).rename(tmp_path / "elsewhere")
    with pytest.raises(Unwritable, match="ENOENT"):
        store.write(key("b"), table("b"), {})
    assert os.listdir(tmp_path) == ["elsewhere"]


def test_too_many_open_files_is_no_full_disk(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "link", exhausted)
    with pytest.raises(OSError, match="Too many open files"):
        store.write(key("a"), table("a"), {})
    assert os.listdir(Path(store.location, "tmp")) == []


KILLED = """
import random, signal, sys, time
from test_local import *
from tests.support.waiting import HANGING
generator, total = random.Random(3), 0
for point in range(20):
    store = LocalStore(Path(sys.argv[1], str(point)))
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        for name in range(100_000):
            store.write(key(name), table(name), {})
            os.write(tell, b".")
    os.read(told, 1)
    time.sleep(generator.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(tell)
    acknowledged = 1 + len(os.read(told, 1_000_000))
    os.close(told)
    found = sound(store, range(acknowledged + 1))
    assert found in (acknowledged, acknowledged + 1), (found, acknowledged)
    assert len(os.listdir(Path(store.location, "tmp"))) <= 1
    assert WriteEffect.NEW == store.write(key(found), table(found), {})
    total += found
print(total)
"""


def test_killed_writer_loses_no_result(tmp_path: Path) -> None:
    assert int(ended(python(KILLED, tmp_path))) > 20
