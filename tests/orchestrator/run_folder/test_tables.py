"""Each result behind a table is in exactly one of its Parquet parts, whoever writes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import toys

from orchestrator.errors import Damaged, StoreError
from orchestrator.run_folder import tables
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store, open_store

HERE = Execution(address="none", mlflow="off", report=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


def place(store: Store, key: str) -> Path:
    return Path(store.location) / "results" / key[:2] / f"{key}.arrow"


def publishers(store: Store, count: int) -> tuple[Path, tuple[str, ...], list[tables.Publisher]]:
    """A finished run's folder for its parts, the keys behind it, and so many drivers' publishers, all new."""
    report = start([Cell("toys", toys.Config(parts=150))], store, HERE)
    folder = Path(store.location) / "runs" / report.run / "tables" / "parts"
    for part in folder.glob("*.parquet"):
        part.unlink()
    keys = report.roots["parts"]
    return folder, keys, [tables.Publisher(folder, report.run, store, keys) for _ in range(count)]


def numbers(folder: Path) -> list[int]:
    return sorted(pq.read_table(folder)["number"].to_pylist())


def test_two_drivers_leave_each_result_in_one_part(store: Store) -> None:
    folder, keys, (woken, other) = publishers(store, 2)
    woken.publish(keys[:70])
    other.publish(keys[:100])
    woken.publish(keys[:75])
    other.publish(keys, look=True)
    woken.publish(keys)
    assert list(range(150)) == numbers(folder)


def test_parts_that_hold_a_result_twice_are_mended_at_the_end(store: Store, tmp_path: Path) -> None:
    folder, keys, (one, other) = publishers(store, 2)
    elsewhere = tables.Publisher(tmp_path / "elsewhere", one.run, store, keys)
    elsewhere.publish(keys[30:120])
    one.publish(keys)
    for part in (tmp_path / "elsewhere").glob("*.parquet"):  # put there without the lock, which not all disks have
        part.rename(folder / part.name)
    assert 240 == len(numbers(folder))
    other.publish(keys)
    assert list(range(150)) == numbers(folder)


def test_a_part_that_a_killed_driver_left_unfinished_is_in_no_readers_way(store: Store) -> None:
    folder, keys, (one,) = publishers(store, 1)
    (folder / f".abc.parquet.1{tables.atomic_write.SUFFIX}").write_bytes(b"half a part")
    (folder / "torn.parquet").write_bytes(b"PAR1")
    one.publish(keys)
    assert list(range(150)) == numbers(folder)


def test_a_result_that_is_gone_is_left_out_and_said_and_the_others_are_published(store: Store) -> None:
    folder, keys, (one,) = publishers(store, 1)
    place(store, keys[0]).unlink()
    with pytest.raises(StoreError, match=keys[0]):
        one.publish(keys)
    assert list(range(1, 150)) == numbers(folder)


def test_nothing_is_made_where_there_is_nothing_to_publish(store: Store, tmp_path: Path) -> None:
    tables.Publisher(tmp_path / "parts", "toys-1", store, ["ab" * 32]).publish(set(), look=True)
    assert ["store"] == sorted(path.name for path in tmp_path.iterdir())


def test_parts_of_other_inputs_are_removed(store: Store) -> None:
    folder, keys, (one,) = publishers(store, 1)
    one.publish(keys)
    fewer = tables.Publisher(folder, one.run, store, keys[:10])
    fewer.publish(keys[:10])
    assert list(range(10)) == numbers(folder)


def test_the_rows_of_a_table_leave_out_what_is_not_there_and_nothing_else(store: Store) -> None:
    _, keys, _ = publishers(store, 0)
    place(store, keys[1]).unlink()
    assert [0, 2] == rows(store, *keys[:3])
    assert tables.read(store, [keys[1]]) is None
    place(store, keys[2]).write_bytes(b"odd")
    with pytest.raises(Damaged):
        rows(store, *keys[:3])


def rows(store: Store, *keys: str) -> list[int]:
    found = tables.read(store, keys)
    assert found is not None
    return [int(number) for number in found["number"].to_pylist()]
