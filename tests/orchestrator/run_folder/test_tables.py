"""Each result of a table is in exactly one Parquet part, whichever driver writes it.

Tables as users export them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toys

from orchestrator.errors import Damaged, StoreError
from orchestrator.run_folder import tables
from orchestrator.run_folder.tables import KEYS, column, flatten_table
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store
from tests.support.shell import Here

HERE = Execution(address="none", mlflow="off", report=False)


def result_path(store: Store, key: str) -> Path:
    return Path(store.location) / "results" / key[:2] / f"{key}.arrow"


def publishers(store: Store, count: int) -> tuple[Path, tuple[str, ...], list[tables.Publisher]]:
    """The folder of a finished run's parts, its keys, and a number of new publishers."""
    report = start([Cell("toys", toys.Config(parts=150))], store, HERE)
    folder = Path(store.location) / "runs" / report.run / "tables" / "parts"
    for part in folder.glob("*.parquet"):
        part.unlink()
    keys = report.roots["parts"]
    return folder, keys, [tables.Publisher(folder, report.run, store, keys) for _ in range(count)]


def numbers(folder: Path) -> list[int]:
    return sorted(pq.read_table(folder)["number"].to_pylist())


def test_two_drivers_store_each_result_in_one_part(store: Store) -> None:
    folder, keys, (first, second) = publishers(store, 2)
    first.publish(keys[:70])
    second.publish(keys[:100])
    first.publish(keys[:75])
    second.publish(keys, reads_parts=True)
    first.publish(keys)
    assert list(range(150)) == numbers(folder)


def test_results_in_two_parts_are_finally_deduplicated(store: Store, tmp_path: Path) -> None:
    folder, keys, (one, second) = publishers(store, 2)
    elsewhere = tables.Publisher(tmp_path / "elsewhere", one.run, store, keys)
    elsewhere.publish(keys[30:120])
    one.publish(keys)
    for part in (tmp_path / "elsewhere").glob("*.parquet"):  # put there without the lock, which not all disks have
        part.rename(folder / part.name)
    assert len(numbers(folder)) == 240
    second.publish(keys)
    assert list(range(150)) == numbers(folder)


def test_unfinished_part_of_killed_driver_is_ignored(store: Store) -> None:
    folder, keys, (one,) = publishers(store, 1)
    (folder / f".abc.parquet.1{tables.atomic_write.SUFFIX}").write_bytes(b"half a part")
    (folder / "torn.parquet").write_bytes(b"PAR1")
    one.publish(keys)
    assert list(range(150)) == numbers(folder)


def test_damaged_part_is_detected_and_rewritten(store: Store) -> None:
    folder, keys, (one, second) = publishers(store, 2)
    one.publish(keys)
    for part in folder.glob("*.parquet"):
        data = bytearray(part.read_bytes())
        data[len(data) // 3] ^= 1
        part.write_bytes(data)
    second.publish(keys)
    assert list(range(150)) == numbers(folder)
    assert all(map(second._part_keys, folder.glob("*.parquet")))


def test_missing_result_is_reported_and_others_published(store: Store) -> None:
    folder, keys, (one,) = publishers(store, 1)
    result_path(store, keys[0]).unlink()
    with pytest.raises(StoreError, match=keys[0]):
        one.publish(keys)
    assert list(range(1, 150)) == numbers(folder)


def test_empty_table_creates_no_folder(store: Store, tmp_path: Path) -> None:
    tables.Publisher(tmp_path / "parts", "toys-1", store, ["ab" * 32]).publish(set(), reads_parts=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_parts_of_other_inputs_are_removed(store: Store) -> None:
    folder, keys, (one,) = publishers(store, 1)
    one.publish(keys)
    fewer = tables.Publisher(folder, one.run, store, keys[:10])
    fewer.publish(keys[:10])
    assert list(range(10)) == numbers(folder)


def test_table_omits_only_missing_results(store: Store) -> None:
    _, keys, _ = publishers(store, 0)
    result_path(store, keys[1]).unlink()
    assert rows(store, *keys[:3]) == [0, 2]
    assert tables.read(store, [keys[1]]) is None
    result_path(store, keys[2]).write_bytes(b"odd")
    with pytest.raises(Damaged):
        rows(store, *keys[:3])


def rows(store: Store, *keys: str) -> list[int]:
    table = tables.read(store, keys)
    assert table is not None
    return [int(number) for number in table["number"].to_pylist()]


def flat_rows(*settings: object) -> pa.Table:
    """Rows of a summary with these settings. Their estimates count from 0."""
    texts = [None if setting is None else json.dumps(setting) for setting in settings]
    estimates = pa.array([float(index) for index in range(len(settings))], pa.float64())
    return pa.table({"metric": ["M"] * len(settings), "setting": pa.array(texts, pa.string()), "estimate": estimates})


def test_setting_becomes_typed_columns() -> None:
    flattened = flatten_table(flat_rows({"model": "canary", "p": 1}, {"p": 0.5, "told": True}, None), "toys-1")
    assert flattened.schema.names == [
        "run",
        "metric",
        "setting",
        "setting_model",
        "setting_p",
        "setting_told",
        "estimate",
    ]
    types = []
    for name in ("model", "p", "told"):
        types.append(flattened.schema.field(f"setting_{name}").type)
    assert [pa.string(), pa.float64(), pa.bool_()] == types
    assert flattened["setting_p"].to_pylist() == [1.0, 0.5, None]
    assert flattened["run"].to_pylist() == ["toys-1"] * 3


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (({"a": [1, 2]}, {"a": [3]}), ["[1,2]", "[3]"]),
        (({"a": {"b": 1}}, {"a": 2}), ['{"b": 1}', "2"]),
        (({"a": "x"}, {"a": 2}, {"a": None}), ["x", "2", None]),
        (({"a": 2**70}, {}), [str(2**70), None]),
        (({"a": None}, {"a": None}), [None, None]),
    ],
)
def test_values_of_several_types_are_text(values: tuple[object, ...], column: list[str | None]) -> None:
    assert column == flatten_table(flat_rows(*values), "toys-1")["setting_a"].to_pylist()


@pytest.mark.parametrize("values", [["é", "", None], [1, None, -(2**63)], [0.5, None, -1e308], [True, None, False]])
def test_column_equals_pyarrows_column(values: list[Any]) -> None:
    for many in (values, values * 7, values[:1]):
        built_column = column(many)
        built_column.validate(full=True)
        assert built_column.equals(pa.array(many))


def test_invalid_setting_adds_no_column() -> None:
    torn = pa.table({"setting": ["{torn", "[1]"], "run": ["mine", "mine"]})
    flattened = flatten_table(torn, "toys-1")
    assert flattened.to_pydict() == {"cell_run": ["toys-1"] * 2, "setting": ["{torn", "[1]"], "run": ["mine"] * 2}
    assert flatten_table(pa.table({}), "toys-1").num_columns == 0


def test_empty_table_has_run_and_own_columns() -> None:
    assert flatten_table(flat_rows(), "toys-1").schema.names == ["run", "metric", "setting", "estimate"]


def test_runs_join_in_pandas_without_parsing() -> None:
    flattened_tables = []
    for run in ("toys-1", "toys-2"):
        flattened_tables.append(flatten_table(flat_rows({"model": "canary"}, {"model": "twin"}), run).to_pandas())
    models = pd.concat(flattened_tables).pivot(index="run", columns="setting_model", values="estimate")
    assert models.to_dict() == {"canary": {"toys-1": 0.0, "toys-2": 0.0}, "twin": {"toys-1": 1.0, "toys-2": 1.0}}


def test_parts_of_an_earlier_version_are_rewritten(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    run = engram.json("run", "toys", "parts=2", "--address", "none")["run"]
    [part] = (tmp_path / "engram-store" / "runs" / run / "tables" / "parts").glob("*.parquet")
    now = pq.read_table(part)
    earlier = now.drop_columns(["run"]).replace_schema_metadata({KEYS: now.schema.metadata[KEYS]})
    pq.write_table(earlier, part)
    engram("resume", run, "--address", "none")
    assert now.equals(pq.read_table(part))
