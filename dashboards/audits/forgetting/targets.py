"""Model roles, target names and decisions, and how they appear in every figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, legend, sweep
from dashboards.columns import integers, numbers, texts, with_columns
from dashboards.run import Run
from dashboards.summary import finite

NAMES = {"query": "query models", "calibration": "calibration models"}
# Colour, marker and dash. *Forgotten* looks like calibration models, *not forgotten* like query models.
ROLES: Mapping[str, legend.Series] = {
    "query": ("canary", "^", (0, (5, 1.5))),
    "calibration": ("twin", "o", (0, (1, 1.2))),
    "partial": ("ochre", "s", (0, (4, 1, 1, 1))),
    "target": ("accent", "D", "-"),
}
DECISIONS = {
    "forgotten": ("twin", "o"),
    "undecided": ("ochre", "s"),
    "not assessable": ("violet", "X"),
    "not forgotten": ("canary", "^"),
}
# Lines for the boundary of the rule and for models trained like the query models.
BOUND: Mapping[str, Any] = {"color": drawing.light("ink"), "linewidth": 1.0, "linestyle": "-"}
FLOOR: Mapping[str, Any] = {"color": drawing.light("muted"), "linewidth": 1.4, "linestyle": (0, (1, 1.5))}
ModelGroup = tuple[str, int]  # role, and number of the target (-1 without a target)


@with_columns(("target", "name"), dict)
def target_names(ratios: pa.Table) -> dict[int, str]:
    """Return the name of each target by its number."""
    return dict(zip(integers(ratios, "target").tolist(), texts(ratios, "name").tolist(), strict=True))


def group_name(group: ModelGroup, names: Mapping[int, str]) -> str:
    role, number = group
    if role == "partial":
        return f"known share {number + 1}"
    return NAMES.get(role) or names.get(number) or f"target {number}"


def target_numbers(table: pa.Table) -> NDArray[np.int64]:
    """Return each row's target number, which is -1 for query and calibration models."""
    number = numbers(table, "target")
    return np.where(np.isnan(number), -1, number).astype(np.int64)


@with_columns(("model", "target"), dict)
def values_by_group(table: pa.Table, column: str) -> dict[ModelGroup, NDArray[np.float64]]:
    """Return the values of a column by role and target: query models, calibration models, then targets."""
    if column not in table.column_names:
        return {}
    role = texts(table, "model")
    number = target_numbers(table)
    values = numbers(table, column)
    is_known = (role != "") & ~np.isnan(values)
    values_by_group = {}
    for group in sort_groups(zip(role[is_known].tolist(), number[is_known].tolist(), strict=True)):
        values_by_group[group] = values[is_known & (role == group[0]) & (number == group[1])]
    return values_by_group


def sort_groups(groups: Any) -> list[ModelGroup]:
    roles = ("query", "calibration", "partial", "target")
    known_groups = {group for group in groups if group[0] in roles}
    return sorted(known_groups, key=lambda group: (roles.index(group[0]), group[1]))


@with_columns(("query", "model", "replicate"), dict)
def replicates(distances: pa.Table) -> dict[str, int]:
    """Count the query and calibration models in the table of distances."""
    role = texts(distances, "model")
    replicate = integers(distances, "replicate")
    query = set(integers(distances, "query").tolist()) | set(replicate[role == "query"].tolist())
    return {"query": len(query), "calibration": len(set(replicate[role == "calibration"].tolist()))}


def negligible(run: Run) -> float | None:
    """Return the largest share of D_Q that a forgotten target may hold. Returns None if unknown."""
    share = sweep.config_value(run.about.get("config"), "query.control.negligible")
    if finite(share):
        return float(share)
    return None


def format_count(number: int, name: str) -> str:
    """Format a count with its noun: `1 query model`, `5 query models`."""
    return f"{number:,} {name}{'s'[: number != 1]}"


def two_sided_mark() -> dict[str, Any]:
    """Return the marker of the published, two-sided distance in the same run."""
    return {
        "color": drawing.light("violet"),
        "marker": "v",
        "markersize": 4.5,
        "markerfacecolor": drawing.light("paper"),
    }


def legend_height(legends: int) -> float:
    """Return the height in inches of a legend with this many rows."""
    return 0.21 * legends + 0.18
