"""Summaries of incomplete tables: a missing table removes only its own rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.unique_feature import PRESETS, plan, tiny
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.summary import MEASURES, summary
from tasks.contract.measure import Measure, Tables
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.depth_first import tables

# The tables that the summary reads, by question.
SUMMARISED = {
    "pairs": ("canary_scores", "chosen", "regularised", "traced", "canary_verdicts", "detection", "panels"),
    "course": ("course",),
    "units": ("latents",),
    "pictures": ("contrast",),
    "single models": ("family", "divergences", "accuracies"),
}
# Other tables that the rows of a measure depend on.
DEPENDENCIES = {"chosen": "canary_scores"}


def plans() -> dict[str, dict[str, Any]]:
    """The plans of every question."""
    small = with_settings(
        tiny(PRESETS["smoke"]),  # type: ignore[arg-type]
        data=pin(Dataset("digits")),
        probe=pin(Dataset("photos")),
        examples=60,
        epochs=1,
        probes=20,
        **{"family.count": 19},
    )
    training = {"data": pin(Dataset("digits")), "examples": 60, "epochs": 1}
    questions = {
        "pairs": {
            "choice": "self-influence",
            "with_feature": True,
            "measures": ("scores", "family"),
            "dropout": True,
            "beside_plain": True,
        },
        "course": {"question": "course", "canaries": 3, **training},
        "units": {"question": "latents", "canaries": 3, **training},
        "pictures": {"question": "pictures", "data": pin(Dataset("digits"))},
        "single models": {"question": "panel", "probes": 20, "family.count": 19, **training},
    }
    result = {}
    for name, settings in questions.items():
        result[name] = dict(plan(with_settings(small, settings)))
    return result


@pytest.fixture(scope="module")
def computed_tables() -> dict[str, dict[str, pa.Table]]:
    """Every table that a summary reads, by question."""
    return {kind: tables(roots) for kind, roots in plans().items()}


def rows(measure: Measure, inputs: list[pa.Table]) -> list[dict[str, Any]]:
    if measure.rows is None:
        return []
    return list(measure.rows(Tables(inputs), PublishedCell()))


@pytest.mark.parametrize(("kind", "left_out"), [(kind, name) for kind, names in SUMMARISED.items() for name in names])
def test_missing_table_removes_only_its_rows(
    kind: str, left_out: str, computed_tables: dict[str, dict[str, pa.Table]]
) -> None:
    all_inputs = {name: computed_tables[kind][name] for name in SUMMARISED[kind]}
    remaining = [table for name, table in all_inputs.items() if name != left_out]
    expected = []
    removed_rows = []
    for measure in MEASURES:
        is_removed = left_out in (measure.name, DEPENDENCIES.get(measure.name))
        (removed_rows if is_removed else expected).extend(rows(measure, list(all_inputs.values())))
    assert removed_rows
    assert expected == summary(PublishedCell(), remaining).to_pylist()


def test_every_table_contributes_rows(computed_tables: dict[str, dict[str, pa.Table]]) -> None:
    abouts = {kind: roots["summary"].config for kind, roots in plans().items()}
    for kind, names in SUMMARISED.items():
        inputs = [computed_tables[kind][name] for name in names]
        assert summary(abouts[kind], inputs).to_pylist() == computed_tables[kind]["summary"].to_pylist()
        assert len(inputs) == sum(bool(rows(measure, inputs)) for measure in MEASURES)


def test_no_table_gives_no_rows() -> None:
    assert summary(PublishedCell(), []).num_rows == 0
