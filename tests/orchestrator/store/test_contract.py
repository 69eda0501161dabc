"""Behaviour that all stores share: in a folder, in an S3 bucket and in an Azure container."""

from __future__ import annotations

import hashlib
import pickle
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.errors import Absent, Damaged, StoreError
from orchestrator.store import Store, WriteEffect, durability, is_there, open_store
from tests.support.azurite import CONTAINER, Azurite
from tests.support.s3 import BUCKET, Server


@dataclass(frozen=True)
class StoreLocation:
    """The location of a store, and access to its files that bypasses the store."""

    location: str
    names: Callable[[str], list[str]]  # below a folder
    get: Callable[[str], bytes]
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]

    def result(self, name: object) -> str:
        return f"results/{key(name)[:2]}/{key(name)}.arrow"

    def flip(self, name: object, bit: int) -> None:
        data = bytearray(self.get(self.result(name)))
        data[bit // 8] ^= 1 << bit % 8
        self.put(self.result(name), bytes(data))


def folder(path: Path) -> StoreLocation:
    def names(below: str) -> list[str]:
        return sorted(str(path_below.relative_to(path)) for path_below in (path / below).rglob("*.*"))

    return StoreLocation(
        str(path),
        names,
        lambda name: (path / name).read_bytes(),
        lambda name, data: (path / name).write_bytes(data),
        lambda name: (path / name).unlink(),
    )


def bucket(server: Server | Azurite, where: str) -> StoreLocation:
    def names(below: str) -> list[str]:
        return sorted(name.removeprefix("audits/one/") for name in server.names(f"audits/one/{below}"))

    return StoreLocation(
        f"{where}/audits/one",
        names,
        lambda name: server.get(f"audits/one/{name}"),
        lambda name, data: server.put(f"audits/one/{name}", data),
        lambda name: server.delete(f"audits/one/{name}"),
    )


@pytest.fixture(params=["folder", "s3", "azure"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    if request.param == "folder":
        return folder(tmp_path / "store")
    where = f"s3://{BUCKET}" if request.param == "s3" else f"az://{CONTAINER}"
    return bucket(request.getfixturevalue(request.param), where)


@pytest.fixture
def store(location: StoreLocation) -> Store:
    return open_store(location.location)


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def table(name: object) -> pa.Table:
    """A few values that only this name has."""
    numbers = random.Random(str(name))
    return pa.table({"name": [str(name)] * 20, "value": [numbers.random() for _ in range(20)]})


def put(store: Store, name: object) -> None:
    assert store.write(key(name), table(name), {"task": "t", "version": 1}) == WriteEffect.NEW


def test_result_is_read_as_written(store: Store, location: StoreLocation) -> None:
    assert key("a") not in store
    put(store, "a")
    assert key("a") in store
    assert table("a") == store.read(key("a"))
    for record in (store.record(key("a")), store.record(key("a"), check=False)):
        assert record["key"] == key("a")
        assert record["task"] == "t"
        assert record["version"] == 1
    assert {key("a")} == store.keys() == open_store(location.location, create=False).keys()
    assert table("a") == pa.ipc.open_file(location.get(location.result("a"))).read_all()


def test_absent_result_is_named(store: Store) -> None:
    for read_method in (store.read, store.record, lambda name: store.record(name, check=False)):
        with pytest.raises(Absent, match=key("a")):
            read_method(key("a"))


def test_key_with_path_characters_is_refused(store: Store) -> None:
    for bad in ("", "../../etc/passwd", "ABCDEF0123456789", "ab/cd" * 8):
        with pytest.raises(StoreError, match="not a key"):
            store.write(bad, table("a"), {})


def test_state_is_kept_until_removed(store: Store, location: StoreLocation) -> None:
    data = random.Random(1).randbytes(100_000)
    store.write_state(key("a"), b"an earlier one")
    store.write_state(key("a"), data)
    store.write_state(key("b"), b"")
    assert store.state(key("a")) == data
    assert store.state(key("b")) == b""
    assert {key("a"), key("b")} == store.states() == open_store(location.location, create=False).states()
    assert set() == store.keys()
    store.remove_state(key("a"))
    store.remove_state(key("a"))
    assert store.states() == {key("b")}
    with pytest.raises(Absent, match=key("a")):
        store.state(key("a"))


def test_damaged_or_misplaced_state_is_removed(store: Store, location: StoreLocation) -> None:
    name = f"states/{key('a')}.state"
    store.write_state(key("a"), b"a state")
    sound = location.get(name)
    harmed = []
    for flipped in range(0, len(sound), 9):
        harmed.append(bytes(byte ^ (index == flipped) for index, byte in enumerate(sound)))
    store.write_state(key("b"), b"a state")
    for data in (*harmed, sound[:-1], sound + b"!", b"", location.get(f"states/{key('b')}.state")):
        location.put(name, data)
        with pytest.raises(
            Damaged, match=f"state {key('a')} was damaged: its bytes do not match their digest; it was removed"
        ):
            store.state(key("a"))
        assert store.states() == {key("b")}


def test_store_is_usable_in_another_process(store: Store) -> None:
    put(store, "a")
    assert table("a") == pickle.loads(pickle.dumps(store)).read(key("a"))


def test_second_write_keeps_the_first_result(store: Store, location: StoreLocation) -> None:
    put(store, "a")
    before = location.get(location.result("a"))
    chunked = pa.concat_tables([table("a").slice(0, 3), table("a").slice(3)])
    assert store.write(key("a"), chunked, {"another": "record"}) == WriteEffect.SAME
    assert location.names("conflicts") == []
    assert [store.write(key("a"), table("other"), {}) for _ in range(2)] == [WriteEffect.CONFLICT] * 2
    assert before == location.get(location.result("a"))
    [newcomer] = location.names("conflicts")
    assert newcomer.startswith(f"conflicts/{key('a')}.")
    assert table("other") == pa.ipc.open_file(location.get(newcomer)).read_all()


@pytest.mark.parametrize(("is_alike", "later"), [(True, WriteEffect.SAME), (False, WriteEffect.CONFLICT)])
def test_first_of_several_writers_wins(
    location: StoreLocation, store: Store, is_alike: bool, later: WriteEffect
) -> None:
    def write(number: int) -> WriteEffect:
        return open_store(location.location).write(key("a"), table("a" if is_alike else number), {})

    with ThreadPoolExecutor(8) as pool:
        effects = list(pool.map(write, range(8)))
    assert Counter(effects) == {WriteEffect.NEW: 1, later: 7}
    assert store.read(key("a")) == table("a" if is_alike else effects.index(WriteEffect.NEW))
    assert len(location.names("conflicts")) == (0 if is_alike else 7)


def test_all_writers_of_a_file_get_one_content(location: StoreLocation, store: Store) -> None:
    def keep(number: int) -> bytes:
        return open_store(location.location).keep_run_file("one", "way.json", str(number).encode())

    store.folder("runs", "one")
    with ThreadPoolExecutor(8) as pool:
        stored_contents = set(pool.map(keep, range(8)))
    assert stored_contents == {store.read_run_file("one", "way.json")}


def test_table_that_cannot_be_stored_leaves_nothing(store: Store, location: StoreLocation) -> None:
    before = location.names("")
    with pytest.raises(TypeError):
        store.write(key("a"), table("a"), {"config": object()})
    assert set() == store.keys()
    assert before == location.names("")


def test_damaged_result_is_quarantined_and_rewritten(store: Store, location: StoreLocation) -> None:
    generator = random.Random(7)
    rounds = 12
    for _ in range(rounds):
        put(store, "a")
        data = location.get(location.result("a"))
        if generator.random() < 0.3:
            location.put(location.result("a"), data[: generator.randrange(len(data))])
        else:
            location.flip("a", generator.randrange(8 * len(data)))
        bad = location.get(location.result("a"))
        with pytest.raises(Damaged, match="quarantine"):
            generator.choice([store.read, store.record])(key("a"))
        assert key("a") not in store
        quarantined = max(name for name in location.names("quarantine") if name.endswith(".arrow"))
        assert bad == location.get(quarantined)
        assert key("a") in location.get(quarantined.replace(".arrow", ".txt")).decode()
    assert rounds == sum(name.endswith(".arrow") for name in location.names("quarantine"))


def test_swapped_results_are_detected(store: Store, location: StoreLocation) -> None:
    put(store, "a"), put(store, "b")
    one = location.get(location.result("a"))
    two = location.get(location.result("b"))
    location.put(location.result("a"), two), location.put(location.result("b"), one)
    for name, other_name in (("a", "b"), ("b", "a")):
        with pytest.raises(Damaged, match=f"it is the result of {key(other_name)}"):
            store.read(key(name))
    assert set() == store.keys()


def test_writing_over_a_damaged_result_replaces_it(store: Store, location: StoreLocation) -> None:
    put(store, "b")
    for bad in (b"", b"nonsense" * 50, location.get(location.result("b"))):
        put(store, "a")
        location.put(location.result("a"), bad)
        put(store, "a")
        assert table("a") == store.read(key("a"))
        location.delete(location.result("a"))
    assert sum(name.endswith(".arrow") for name in location.names("quarantine")) == 3


def test_verify_lists_damaged_results_in_order(store: Store, location: StoreLocation) -> None:
    for number in range(40):
        put(store, number)
    location.flip(7, 4000)
    location.put(location.result(20), location.get(location.result(20))[:100])
    location.delete(location.result(39))
    for _ in range(2):
        problems = list(store.verify(key(number) for number in range(40)))
        assert [key(7), key(20), key(39)] == [name for name, _ in problems]
        assert "no result" in str(problems[2][1])
    assert sum(name.endswith(".arrow") for name in location.names("quarantine")) == 2


def test_verify_detects_result_of_another_key(store: Store, location: StoreLocation) -> None:
    put(store, "a")
    store.write(key("b"), table("b"), {"config": {"of": key("a")}, "inputs": [key("a")]})
    location.put(location.result("a"), location.get(location.result("b")))
    assert [key("a")] == [name for name, _ in store.verify([key("a"), key("b")])]


def test_stamp_changes_only_with_the_bytes(
    store: Store, location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "file_system", lambda *_: "ext4")
    store = open_store(location.location)
    for number in range(3):
        put(store, number)
    keys = [key(number) for number in range(3)]
    while len(first := store.stamps([*keys, key("absent")])) < 3:  # a file has none at once
        time.sleep(0.01)
    assert keys == list(first)
    location.flip(1, 4000)
    location.delete(location.result(2))
    changed = store.stamps(keys)
    assert {name: stamp for name, stamp in changed.items() if name != keys[1]} == {keys[0]: first[keys[0]]}
    assert changed.get(keys[1]) != first[keys[1]]


def test_failure_is_stored_until_cleared(store: Store, location: StoreLocation) -> None:
    assert store.failure(key("a")) is None
    store.write_failure(key("a"), "first")
    store.write_failure(key("a"), "Traceback: \N{SNOWMAN} \udcff")
    assert store.failure(key("a")) == "Traceback: \N{SNOWMAN} ?"
    assert key("a") not in store
    other_name = open_store(location.location)  # as a later start of the run has it
    other_name.clear_failure(key("a"))
    other_name.clear_failure(key("a"))
    assert store.failure(key("a")) is None


def test_digests_are_shared_by_all_writers(store: Store, location: StoreLocation) -> None:
    one = store.digests()
    two = store.digests()
    one["mnist"], two["digits"] = "aa", "bb"
    del two["mnist"]
    two["photos"] = "cc"
    assert dict(open_store(location.location).digests()) == {"digits": "bb", "photos": "cc"}


def test_folders_are_created_inside_the_store(store: Store) -> None:
    path = store.folder("runs", "one")
    assert path.is_dir()
    assert path.name == "one"
    assert path.parent.name == "runs"
    for parts in ((), ("",), (".",), ("..",), ("a/b",), ("runs", ""), ("runs", "a\0b"), ("runs", "..")):
        with pytest.raises(StoreError, match="is not a valid name of a folder in the store"):
            store.folder(*parts)


def test_store_is_created_only_if_allowed(location: StoreLocation) -> None:
    assert not is_there(location.location)
    with pytest.raises(StoreError, match="no store at"):
        open_store(location.location, create=False)
    assert location.names("") == []
    open_store(location.location)
    assert is_there(location.location)
    assert [name for name in location.names("") if "." in name] == ["engram-store.json"]


def test_folder_with_other_files_is_refused(location: StoreLocation, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    location.put("thesis.tex", b"mine")
    with pytest.raises(StoreError, match=r"not a store and not empty \(it has thesis.tex\)"):
        open_store(location.location)
    assert location.names("") == ["thesis.tex"]


def test_newer_store_format_is_refused(store: Store, location: StoreLocation) -> None:
    location.put("engram-store.json", b'{"format": 2}')
    with pytest.raises(StoreError, match="update Engram"):
        open_store(location.location)


UNREADABLE = (b"", b"{", b"[]", b"{}", b'{"format": "1"}', b'{"format": 0}', b'{"format": true}', b"\xff")


def test_unreadable_marker_stops_and_is_left_unchanged(store: Store, location: StoreLocation) -> None:
    put(store, "a")
    for text in UNREADABLE:
        location.put("engram-store.json", text)
        before = location.names("")
        with pytest.raises(StoreError, match=r"engram-store.json cannot be read"):
            open_store(location.location)
        assert before == location.names("")
        assert text == location.get("engram-store.json")
