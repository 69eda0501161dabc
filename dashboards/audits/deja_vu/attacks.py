"""Attacks on models: after which epoch, at which layer and of how many neighbours; and which of them decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dashboards.columns import integers, texts

BOTH = "both"  # ways of a test: the mean of the two, or all pictures together


class Attack(NamedTuple):
    """The models after an epoch, asked at a layer for so many neighbours."""

    epoch: int
    layer: int
    k: int

    def describe(self) -> str:
        return f"epoch {self.epoch}, layer {self.layer}, k {self.k}"


def both_ways_rows(table: pa.Table) -> pa.Table:
    """The rows of both ways together; without columns where it is no table of attacks."""
    if not {*Attack._fields, "way"} <= set(table.column_names):
        return pa.table({})
    return table.take(pa.array(np.flatnonzero(texts(table, "way") == BOTH)))


def read_attacks(table: pa.Table) -> list[Attack]:
    """The attacks of a table, in its order: epochs ascending, layers and numbers of neighbours as they were asked."""
    if not table.num_rows:
        return []
    columns = (integers(table, name).tolist() for name in Attack._fields)
    return list(dict.fromkeys(Attack(*values) for values in zip(*columns, strict=True)))


def decisive_attack(found: Sequence[Attack]) -> Attack:
    """The attack that the answer rests on: after the last epoch, at the first layer, of the first k."""
    return Attack(max(each.epoch for each in found), found[0].layer, found[0].k)


def attack_rows(table: pa.Table, attack: Attack) -> pa.Table:
    """The rows of one attack."""
    chosen = np.logical_and.reduce([integers(table, name) == value for name, value in attack._asdict().items()])
    return table.take(pa.array(np.flatnonzero(chosen)))


def attacks_along(found: Sequence[Attack], field: str) -> list[Attack]:
    """The attacks that differ from the decisive one in this field alone, with it, in ascending order of the field."""
    rest = decisive_attack(found)._asdict() | {field: None}
    return sorted(
        (each for each in found if each._asdict() | {field: None} == rest), key=lambda each: each._asdict()[field]
    )


def neighbouring_attacks(found: Sequence[Attack]) -> Iterator[Attack]:
    """Those that differ from the decisive one in one field, epoch by epoch, then layers, then numbers of neighbours."""
    last = decisive_attack(found)
    for field in Attack._fields:
        yield from (each for each in attacks_along(found, field) if each != last)
