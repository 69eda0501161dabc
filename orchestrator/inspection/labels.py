"""Labels of a sweep's cells: the fewest fields that distinguish them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.spec.fields import text
from orchestrator.spec.resolve import Cell, LeftOut

Setting = Mapping[str, Any]


def distinguishing_fields(settings: Sequence[Setting]) -> list[str]:
    """A minimal list of fields that distinguish these settings.

    Of fields that vary together (say a network with its batch size) the first one is kept.
    """
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    words = [
        {name: json.dumps(setting.get(name), sort_keys=True, default=str) for name in names} for setting in settings
    ]

    def apart(fields: Sequence[str]) -> int:
        return len({tuple(texts[name] for name in fields) for texts in words})

    kept = names
    for name in reversed(names):
        fewer = [field for field in kept if field != name]
        if apart(fewer) == apart(names):
            kept = fewer
    return kept


def label(setting: Setting, fields: Iterable[str]) -> str:
    """The label of a cell from these fields: `data=mnist, network=mlp1`."""
    return ", ".join(f"{name}={text(setting[name])}" for name in fields if name in setting)


def describe_left_out(cells: Sequence[Cell], left_out: Sequence[LeftOut]) -> list[str]:
    """A line for each cell that is left out, beside those that run: what tells it apart, and what it lacks."""
    fields = distinguishing_fields([cell.setting for cell in cells] + [cell.setting for cell in left_out])
    return [f"left out: {label(cell.setting, fields)}: {cell.problem}" for cell in left_out]
