"""A paper's table over the cells of a sweep: what is published stands beside ours, each named by its cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dashboards import estimates
from dashboards.run import Run
from dashboards.sweep import cell_label, repetition


def row(estimate: float | None, published: float | None, setting: str = "{}") -> dict[str, Any]:
    numbers = {"estimate": estimate, "low": None, "high": None, "n": 3, "unit": "canary", "null": None, "p_value": None}
    return {"metric": "M", "setting": setting, "published": published} | numbers


def sweep(*cells: tuple[Mapping[str, Any], Sequence[dict[str, Any]]]) -> Run:
    found = [SimpleNamespace(about={"setting": setting, "config": {}}, summary=rows) for setting, rows in cells]
    return cast("Run", SimpleNamespace(cells=found))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"dropout": True, "crop": False, "network": "mlp1"}, "dropout, mlp1"),
        ({"dropout": False, "crop": False, "network": "mlp1"}, "mlp1"),
        ({"dropout": False, "crop": False}, "plain"),
        ({"dropout": True, "crop": True, "network": None}, "dropout, crop, none"),
        ({"dropout": 0.5, "data": "mnist@aaaa"}, "0.5, mnist"),
    ],
)
def test_a_cell_is_named_by_what_is_on(setting: dict[str, Any], expected: str) -> None:
    assert expected == cell_label(setting, list(setting))


def test_only_what_was_published_and_measured_is_drawn_with_its_cell_and_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(estimates, "forests", lambda *given: drawn.append(given) or ["figure"])
    cells = sweep(
        ({"dropout": True}, [row(0.5, 0.25, '{"rank": 1}'), row(0.5, None), row(None, 0.1), row(math.nan, 0.1)]),
        ({"dropout": False}, [row(0.75, 0.5), row(0.5, math.inf)]),
    )
    assert ["figure"] == list(repetition(cells))
    ((rows, name, title),) = drawn
    assert ("published", estimates.REPEATED) == (name, title)
    assert [(0.5, 0.25, '{"cell": "dropout", "rank": 1}'), (0.75, 0.5, '{"cell": "plain"}')] == [
        (each["estimate"], each["published"], each["setting"]) for each in rows
    ]


def test_where_nothing_was_published_nothing_is_drawn() -> None:
    assert [] == list(repetition(sweep(({"a": 1}, [row(0.5, None)]), ({"a": 2}, []))))
