"""Code shared by the figures: attacks, the decisive attack, and curves of estimates.

An attack is defined by an epoch, a layer and a number of neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.chart import Curve
from dashboards.columns import integers, numbers, texts, with_columns

BOTH = "both"  # direction: the mean of both directions, or all images
PERCENT = 20  # as published; default if no table row is marked as decisive
# Colour, marker and dash used in several figures.
TARGET = ("canary", "o", "-")
REFERENCE = ("twin", "s", (0, (4, 2)))
GAP = ("accent", "D", (0, (1, 1.5)))
NULL = " This is a control run: both models were trained on other images, the first in place of the named one."
AXIS_LABELS = {"epoch": "epoch", "layer": "layer, 0: the backbone's output", "k": "neighbours that vote"}  # by field
NAMES = {"target_accuracy": "trained on the image", "reference_accuracy": "not trained on it"}


class Attack(NamedTuple):
    """An attack on the models after a given epoch, at a given layer, with k neighbours."""

    epoch: int
    layer: int
    k: int

    def describe(self) -> str:
        return f"epoch {self.epoch}, layer {self.layer}, k {self.k}"


@with_columns({*Attack._fields, "way"}, lambda: pa.table({}))
def both_ways_rows(table: pa.Table) -> pa.Table:
    """Select the rows that combine both directions. Returns a table without columns if it contains no attacks."""
    return table.take(pa.array(np.flatnonzero(texts(table, "way") == BOTH)))


@with_columns(Attack._fields, list)
def read_attacks(table: pa.Table) -> list[Attack]:
    """Return the attacks in table order: by epoch, then layers and numbers of neighbours as requested."""
    columns = (integers(table, name).tolist() for name in Attack._fields)
    return list(dict.fromkeys(Attack(*values) for values in zip(*columns, strict=True)))


def decisive_attack(all_attacks: Sequence[Attack]) -> Attack:
    """Return the decisive attack: after the last epoch, at the first layer, with the first k."""
    return Attack(max(attack.epoch for attack in all_attacks), all_attacks[0].layer, all_attacks[0].k)


def attack_rows(table: pa.Table, attack: Attack) -> pa.Table:
    is_of_attack = np.logical_and.reduce([integers(table, name) == value for name, value in attack._asdict().items()])
    return table.take(pa.array(np.flatnonzero(is_of_attack)))


def attacks_along(all_attacks: Sequence[Attack], field: str) -> list[Attack]:
    """Return the decisive attack and those that differ only in this field, sorted by the field."""
    rest = decisive_attack(all_attacks)._asdict() | {field: None}
    return sorted(
        (attack for attack in all_attacks if attack._asdict() | {field: None} == rest),
        key=lambda attack: attack._asdict()[field],
    )


def neighbouring_attacks(all_attacks: Sequence[Attack]) -> Iterator[Attack]:
    """Yield the attacks that differ from the decisive one in one field: first epochs, then layers, then neighbours."""
    decisive = decisive_attack(all_attacks)
    for field in Attack._fields:
        yield from (attack for attack in attacks_along(all_attacks, field) if attack != decisive)


def read_curve(table: pa.Table, x_column: str, y_column: str) -> Curve | None:
    """Return column `y_column` against column `x_column`. Returns None if there are no values."""
    if not {x_column, y_column} <= set(table.column_names):
        return None
    columns = []
    for column in (x_column, y_column, f"{y_column}_low", f"{y_column}_high"):
        columns.append(numbers(table, column))
    defined = np.flatnonzero(~np.isnan(columns[0]) & ~np.isnan(columns[1]))
    defined = defined[np.argsort(columns[0][defined], kind="stable")]
    if len(defined):
        return Curve(*(column[defined] for column in columns))
    return None


def decisive_percent(table: pa.Table) -> int:
    """Return the decisive percentage of most confident images, for which the score was tested."""
    tested = np.flatnonzero(~np.isnan(numbers(table, "p_value")))
    if len(tested):
        return int(numbers(table, "percent")[tested[0]])
    return PERCENT


def rows_at_percent(table: pa.Table, percent: int) -> pa.Table:
    """Select the rows for this percentage of most confident images."""
    return table.take(pa.array(np.flatnonzero(numbers(table, "percent") == percent)))


def axis_limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return axis limits that contain these estimates, their intervals, and 0."""
    ends = np.concatenate(
        [values for estimates in curves for values in (estimates.value, estimates.low, estimates.high)]
    )
    return drawing.padded_limits([0.0, *ends[~np.isnan(ends)].tolist()])
