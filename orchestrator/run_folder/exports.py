"""A table as it is taken out of the store: with its run, and with the settings of a summary as columns.

Stored results hold neither; the columns are added on the way out, so that tables of several runs can be joined.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from orchestrator import rounding
from orchestrator.spec.fields import text

RUN = "run"
SETTING = "setting"  # a summary's column: JSON of what was varied


def flatten_table(table: pa.Table, run: str) -> pa.Table:
    """The table with a first column `run` and, after a column `setting`, one `setting.NAME` for each of its names.

    Lists in a setting become text. A table that has a column `run` of its own gets the run as `cell.run`. One without
    columns stays as it is.
    """
    if not table.num_columns:
        return table
    name = f"cell.{RUN}" if RUN in table.schema.names else RUN
    return flatten_settings(table.add_column(0, name, column([run] * table.num_rows)))


def flatten_settings(table: pa.Table) -> pa.Table:
    """The table with a column `setting.NAME` for each name in its `setting`; null where a row has none."""
    if SETTING not in table.schema.names:
        return table
    settings = [rounding.parse_setting(value) or {} for value in table[SETTING].to_pylist()]
    after = table.schema.get_field_index(SETTING) + 1
    for offset, name in enumerate(dict.fromkeys(name for setting in settings for name in setting)):
        label = f"{SETTING}.{name}"
        if label not in table.schema.names:
            values = column([_single(setting.get(name)) for setting in settings])
            table = table.add_column(after + offset, label, values)
    return table


def uniform(values: Sequence[Any]) -> list[Any]:
    """The values of one column: integers beside floats as floats, any other mixture, and mappings, as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(kinds) <= 1 and dict not in kinds:
        return list(values)
    return [None if value is None else text(value) for value in values]


def column(values: Sequence[bool | int | float | str | None]) -> pa.Array:
    """The values as an array of one type (`uniform`).

    Made of its buffers, since pyarrow's own conversion from Python's values loads pandas, which takes half a second.
    """
    alike = uniform(values)
    kind = next((type(value) for value in alike if value is not None), str)
    if kind is int and any(value is not None and not -(2**63) <= value < 2**63 for value in alike):
        alike, kind = [None if value is None else str(value) for value in alike], str
    bits = "".join("0" if value is None else "1" for value in reversed(alike))
    bitmap = pa.py_buffer(int(bits, 2).to_bytes(len(alike) // 8 + 1, "little")) if "0" in bits else None
    if kind is str:
        encoded = [b"" if value is None else value.encode() for value in alike]
        offsets = array("i", itertools.accumulate(map(len, encoded), initial=0))
        data = [bitmap, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
        return pa.Array.from_buffers(pa.string(), len(alike), data)
    code, arrow = {bool: ("B", pa.uint8()), int: ("q", pa.int64()), float: ("d", pa.float64())}[kind]
    numbers = array(code, [0 if value is None else value for value in alike])
    made = pa.Array.from_buffers(arrow, len(alike), [bitmap, pa.py_buffer(numbers)])
    return made.cast(pa.bool_()) if kind is bool else made


def _single(value: Any) -> Any:
    return text(value) if isinstance(value, list | dict) else value
