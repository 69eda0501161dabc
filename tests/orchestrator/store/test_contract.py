"""What every store does, wherever it lies: in a folder, in an S3 bucket, and in a container of Azure's."""

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
class Place:
    """Where a store is made, and a way to its files that is not the store's own."""

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


def folder(path: Path) -> Place:
    def names(below: str) -> list[str]:
        return sorted(str(each.relative_to(path)) for each in (path / below).rglob("*.*"))

    return Place(
        str(path),
        names,
        lambda name: (path / name).read_bytes(),
        lambda name, data: (path / name).write_bytes(data),
        lambda name: (path / name).unlink(),
    )


def bucket(server: Server | Azurite, where: str) -> Place:
    def names(below: str) -> list[str]:
        return sorted(name.removeprefix("audits/one/") for name in server.names(f"audits/one/{below}"))

    return Place(
        f"{where}/audits/one",
        names,
        lambda name: server.get(f"audits/one/{name}"),
        lambda name, data: server.put(f"audits/one/{name}", data),
        lambda name: server.delete(f"audits/one/{name}"),
    )


@pytest.fixture(params=["folder", "s3", "azure"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return folder(tmp_path / "store")
    where = f"s3://{BUCKET}" if request.param == "s3" else f"az://{CONTAINER}"
    return bucket(request.getfixturevalue(request.param), where)


@pytest.fixture
def store(place: Place) -> Store:
    return open_store(place.location)


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def table(name: object) -> pa.Table:
    """A few values that only this name has."""
    numbers = random.Random(str(name))
    return pa.table({"name": [str(name)] * 20, "value": [numbers.random() for _ in range(20)]})


def put(store: Store, name: object) -> None:
    assert store.write(key(name), table(name), {"task": "t", "version": 1}) == WriteEffect.NEW


def test_a_result_is_read_as_it_was_written(store: Store, place: Place) -> None:
    assert key("a") not in store
    put(store, "a")
    assert key("a") in store
    assert table("a") == store.read(key("a"))
    for record in (store.record(key("a")), store.record(key("a"), check=False)):
        assert (key("a"), "t", 1) == (record["key"], record["task"], record["version"])
    assert {key("a")} == store.keys() == open_store(place.location, create=False).keys()
    assert table("a") == pa.ipc.open_file(place.get(place.result("a"))).read_all()


def test_an_absent_result_is_named(store: Store) -> None:
    for read in (store.read, store.record, lambda name: store.record(name, check=False)):
        with pytest.raises(Absent, match=key("a")):
            read(key("a"))


def test_a_key_that_is_a_path_is_refused(store: Store) -> None:
    for bad in ("", "../../etc/passwd", "ABCDEF0123456789", "ab/cd" * 8):
        with pytest.raises(StoreError, match="not a key"):
            store.write(bad, table("a"), {})


def test_a_state_is_kept_whole_until_it_is_removed(store: Store, place: Place) -> None:
    data = random.Random(1).randbytes(100_000)
    store.write_state(key("a"), b"an earlier one")
    store.write_state(key("a"), data)
    store.write_state(key("b"), b"")
    assert (data, b"") == (store.state(key("a")), store.state(key("b")))
    assert {key("a"), key("b")} == store.states() == open_store(place.location, create=False).states()
    assert set() == store.keys()
    store.remove_state(key("a"))
    store.remove_state(key("a"))
    assert {key("b")} == store.states()
    with pytest.raises(Absent, match=key("a")):
        store.state(key("a"))


def test_a_state_with_a_bit_changed_or_of_another_key_is_removed(store: Store, place: Place) -> None:
    name = f"states/{key('a')}.state"
    store.write_state(key("a"), b"a state")
    sound = place.get(name)
    harmed = [bytes(byte ^ (at == flipped) for at, byte in enumerate(sound)) for flipped in range(0, len(sound), 9)]
    store.write_state(key("b"), b"a state")
    for data in (*harmed, sound[:-1], sound + b"!", b"", place.get(f"states/{key('b')}.state")):
        place.put(name, data)
        with pytest.raises(
            Damaged, match=f"state {key('a')} was damaged: its bytes do not match their digest; it was removed"
        ):
            store.state(key("a"))
        assert {key("b")} == store.states()


def test_a_store_travels_to_another_process(store: Store) -> None:
    put(store, "a")
    assert table("a") == pickle.loads(pickle.dumps(store)).read(key("a"))


def test_a_result_written_again_or_differently_leaves_the_first_in_its_place(store: Store, place: Place) -> None:
    put(store, "a")
    before = place.get(place.result("a"))
    chunked = pa.concat_tables([table("a").slice(0, 3), table("a").slice(3)])
    assert store.write(key("a"), chunked, {"another": "record"}) == WriteEffect.SAME
    assert place.names("conflicts") == []
    assert [store.write(key("a"), table("other"), {}) for _ in range(2)] == [WriteEffect.CONFLICT] * 2
    assert before == place.get(place.result("a"))
    [newcomer] = place.names("conflicts")
    assert newcomer.startswith(f"conflicts/{key('a')}.")
    assert table("other") == pa.ipc.open_file(place.get(newcomer)).read_all()


@pytest.mark.parametrize(("is_alike", "later"), [(True, WriteEffect.SAME), (False, WriteEffect.CONFLICT)])
def test_first_of_several_writers_wins(place: Place, store: Store, is_alike: bool, later: WriteEffect) -> None:
    def write(number: int) -> WriteEffect:
        return open_store(place.location).write(key("a"), table("a" if is_alike else number), {})

    with ThreadPoolExecutor(8) as pool:
        effects = list(pool.map(write, range(8)))
    assert Counter(effects) == {WriteEffect.NEW: 1, later: 7}
    assert store.read(key("a")) == table("a" if is_alike else effects.index(WriteEffect.NEW))
    assert len(place.names("conflicts")) == (0 if is_alike else 7)


def test_all_writers_of_a_run_file_get_the_first_bytes(place: Place, store: Store) -> None:
    def keep(number: int) -> bytes:
        return open_store(place.location).keep_run_file("one", "way.json", str(number).encode())

    store.folder("runs", "one")
    with ThreadPoolExecutor(8) as pool:
        kept = set(pool.map(keep, range(8)))
    assert kept == {store.read_run_file("one", "way.json")}


def test_a_table_that_cannot_be_stored_leaves_nothing_behind(store: Store, place: Place) -> None:
    before = place.names("")
    with pytest.raises(TypeError):
        store.write(key("a"), table("a"), {"config": object()})
    assert (set(), before) == (store.keys(), place.names(""))


def test_any_damaged_byte_is_found_set_aside_with_a_note_and_healed(store: Store, place: Place) -> None:
    generator = random.Random(7)
    rounds = 12
    for _ in range(rounds):
        put(store, "a")
        data = place.get(place.result("a"))
        if generator.random() < 0.3:
            place.put(place.result("a"), data[: generator.randrange(len(data))])
        else:
            place.flip("a", generator.randrange(8 * len(data)))
        bad = place.get(place.result("a"))
        with pytest.raises(Damaged, match="quarantine"):
            generator.choice([store.read, store.record])(key("a"))
        assert key("a") not in store
        kept = max(name for name in place.names("quarantine") if name.endswith(".arrow"))
        assert bad == place.get(kept)
        assert key("a") in place.get(kept.replace(".arrow", ".txt")).decode()
    assert rounds == sum(name.endswith(".arrow") for name in place.names("quarantine"))


def test_results_swapped_between_two_keys_are_found(store: Store, place: Place) -> None:
    put(store, "a"), put(store, "b")
    one, two = place.get(place.result("a")), place.get(place.result("b"))
    place.put(place.result("a"), two), place.put(place.result("b"), one)
    for name, other in (("a", "b"), ("b", "a")):
        with pytest.raises(Damaged, match=f"it is the result of {key(other)}"):
            store.read(key(name))
    assert set() == store.keys()


def test_writing_over_a_damaged_result_replaces_it(store: Store, place: Place) -> None:
    put(store, "b")
    for bad in (b"", b"nonsense" * 50, place.get(place.result("b"))):
        put(store, "a")
        place.put(place.result("a"), bad)
        put(store, "a")
        assert table("a") == store.read(key("a"))
        place.delete(place.result("a"))
    assert sum(name.endswith(".arrow") for name in place.names("quarantine")) == 3


def test_verify_names_exactly_what_is_wrong_in_order(store: Store, place: Place) -> None:
    for number in range(40):
        put(store, number)
    place.flip(7, 4000)
    place.put(place.result(20), place.get(place.result(20))[:100])
    place.delete(place.result(39))
    for _ in range(2):
        wrong = list(store.verify(key(number) for number in range(40)))
        assert [key(7), key(20), key(39)] == [name for name, _ in wrong]
        assert "no result" in str(wrong[2][1])
    assert sum(name.endswith(".arrow") for name in place.names("quarantine")) == 2


def test_verify_finds_the_result_of_a_job_in_the_place_of_its_input(store: Store, place: Place) -> None:
    put(store, "a")
    store.write(key("b"), table("b"), {"config": {"of": key("a")}, "inputs": [key("a")]})
    place.put(place.result("a"), place.get(place.result("b")))
    assert [key("a")] == [name for name, _ in store.verify([key("a"), key("b")])]


def test_a_stamp_is_the_same_until_the_bytes_are_others(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "file_system", lambda *_: "ext4")
    store = open_store(place.location)
    for number in range(3):
        put(store, number)
    keys = [key(number) for number in range(3)]
    while len(first := store.stamps([*keys, key("absent")])) < 3:  # a file has none at once
        time.sleep(0.01)
    assert keys == list(first)
    place.flip(1, 4000)
    place.delete(place.result(2))
    changed = store.stamps(keys)
    assert {keys[0]: first[keys[0]]} == {name: stamp for name, stamp in changed.items() if name != keys[1]}
    assert changed.get(keys[1]) != first[keys[1]]


def test_a_failure_is_kept_beside_its_key_until_cleared(store: Store, place: Place) -> None:
    assert store.failure(key("a")) is None
    store.write_failure(key("a"), "first")
    store.write_failure(key("a"), "Traceback: \N{SNOWMAN} \udcff")
    assert store.failure(key("a")) == "Traceback: \N{SNOWMAN} ?"
    assert key("a") not in store
    other = open_store(place.location)  # as a later start of the run has it
    other.clear_failure(key("a"))
    other.clear_failure(key("a"))
    assert store.failure(key("a")) is None


def test_digests_are_remembered_by_all_who_add_to_them(store: Store, place: Place) -> None:
    one, two = store.digests(), store.digests()
    one["mnist"], two["digits"] = "aa", "bb"
    del two["mnist"]
    two["photos"] = "cc"
    assert dict(open_store(place.location).digests()) == {"digits": "bb", "photos": "cc"}


def test_folders_are_made_and_lie_nowhere_else(store: Store) -> None:
    path = store.folder("runs", "one")
    assert path.is_dir()
    assert (path.name, path.parent.name) == ("one", "runs")
    for parts in ((), ("",), (".",), ("..",), ("a/b",), ("runs", ""), ("runs", "a\0b"), ("runs", "..")):
        with pytest.raises(StoreError, match="is not a valid name of a folder in the store"):
            store.folder(*parts)


def test_a_store_is_only_made_where_that_is_allowed(place: Place) -> None:
    assert not is_there(place.location)
    with pytest.raises(StoreError, match="no store at"):
        open_store(place.location, create=False)
    assert place.names("") == []
    open_store(place.location)
    assert is_there(place.location)
    assert [name for name in place.names("") if "." in name] == ["engram-store.json"]


def test_a_folder_of_something_else_is_refused_and_left_alone(place: Place, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    place.put("thesis.tex", b"mine")
    with pytest.raises(StoreError, match=r"not a store and not empty \(it has thesis.tex\)"):
        open_store(place.location)
    assert place.names("") == ["thesis.tex"]


def test_a_newer_store_is_refused(store: Store, place: Place) -> None:
    place.put("engram-store.json", b'{"format": 2}')
    with pytest.raises(StoreError, match="update Engram"):
        open_store(place.location)


UNREADABLE = (b"", b"{", b"[]", b"{}", b'{"format": "1"}', b'{"format": 0}', b'{"format": true}', b"\xff")


def test_an_unreadable_marker_stops_and_is_left_alone(store: Store, place: Place) -> None:
    put(store, "a")
    for text in UNREADABLE:
        place.put("engram-store.json", text)
        before = place.names("")
        with pytest.raises(StoreError, match=r"engram-store.json cannot be read"):
            open_store(place.location)
        assert (before, text) == (place.names(""), place.get("engram-store.json"))
