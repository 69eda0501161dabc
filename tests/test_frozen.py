"""`make frozen` sees what a change of the code changes for users."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.frozen import Tree, compare, digest_table, take_inventory, without_prices
from tests.support.shell import ROOT


def test_tables_are_compared_by_their_values() -> None:
    table = pa.table({"x": [0.1, float("nan"), None], "name": ["a", "b", "c"]})
    again = pa.concat_tables([table.slice(0, 1), table.slice(1)]).replace_schema_metadata({"host": "another"})
    assert digest_table(table) == digest_table(again)
    others = [
        table.set_column(0, "x", pa.array([0.1 + 2**-56, float("nan"), None])),
        table.set_column(0, "x", pa.array([0.1, None, None])),
        table.rename_columns(["y", "name"]),
        table.set_column(0, "x", table["x"].cast(pa.float32())),
    ]
    assert len({digest_table(each) for each in (table, *others)}) == 5


def test_what_differs_is_named_by_kind() -> None:
    base = {"table 1": "a", "table 2": "b", "help run": "c"}
    assert {} == compare(base, dict(base))
    now = {"table 1": "x", "help run": "c", "help new": "d"}
    assert {"table": ["table 1: differs", "table 2: gone"], "help": ["help new: new"]} == compare(base, now)


def test_prices_are_left_out() -> None:
    told = {"presets": [{"name": "smoke", "price": {"time": "3 s"}}], "seconds_low": 1.0}
    assert {"presets": [{"name": "smoke"}]} == without_prices(told)


@pytest.mark.slow
def test_an_inventory_holds_the_plan_the_tables_and_the_figures_of_a_preset_and_the_help_of_commands(
    tmp_path: Path,
) -> None:
    found = take_inventory(Tree(ROOT, tmp_path / "tree"), ["unique_feature/smoke"])
    assert "0" == found["run unique_feature smoke"]
    assert '"planned": 18' in found["plan unique_feature smoke"]
    kinds = [name.split()[0] for name in found]
    assert 18 == kinds.count("table")
    assert kinds.count("figure") > 3
    assert {"help run", "help verify"} <= {*found}
    assert all("Usage: " in text for name, text in found.items() if name.startswith("help"))
