"""Summaries of incomplete tables: a missing table removes its own rows only."""

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

# By question, the tables that the summary reads.
READ = {
    "pairs": ("canary_scores", "chosen", "regularised", "traced", "canary_verdicts", "detection", "panels"),
    "course": ("course",),
    "units": ("latents",),
    "pictures": ("contrast",),
    "single models": ("family", "divergences", "accuracies"),
}
# The tables beside its own that a measure's rows cannot do without.
NEEDED = {"chosen": "canary_scores"}


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
    return {name: dict(plan(with_settings(small, settings))) for name, settings in questions.items()}


@pytest.fixture(scope="module")
def computed() -> dict[str, dict[str, pa.Table]]:
    """Every table that a summary reads, by question."""
    return {kind: tables(planned) for kind, planned in plans().items()}


def rows(measure: Measure, found: list[pa.Table]) -> list[dict[str, Any]]:
    return [] if measure.rows is None else list(measure.rows(Tables(found), PublishedCell()))


@pytest.mark.parametrize(("kind", "missing"), [(kind, name) for kind, names in READ.items() for name in names])
def test_without_a_table_the_summary_has_the_rows_of_all_others(
    kind: str, missing: str, computed: dict[str, dict[str, pa.Table]]
) -> None:
    read = {name: computed[kind][name] for name in READ[kind]}
    left = [table for name, table in read.items() if name != missing]
    expected, lost = [], []
    for measure in MEASURES:
        gone = missing in (measure.name, NEEDED.get(measure.name))
        (lost if gone else expected).extend(rows(measure, list(read.values())))
    assert lost
    assert expected == summary(PublishedCell(), left).to_pylist()


def test_the_summary_reads_every_table_that_has_rows_to_give(computed: dict[str, dict[str, pa.Table]]) -> None:
    abouts = {kind: planned["summary"].config for kind, planned in plans().items()}
    for kind, names in READ.items():
        read = [computed[kind][name] for name in names]
        assert summary(abouts[kind], read).to_pylist() == computed[kind]["summary"].to_pylist()
        assert len(read) == sum(bool(rows(measure, read)) for measure in MEASURES)


def test_without_any_table_there_are_no_rows() -> None:
    assert summary(PublishedCell(), []).num_rows == 0
