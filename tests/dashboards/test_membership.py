"""The figures of membership, and the numbers in their captions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dashboards.audits.membership.attacks import LOOKS
from dashboards.audits.membership.records import EACH, GROUPS
from dashboards.figures import figures
from dashboards.page import gallery
from dashboards.run import Run
from orchestrator.store import Store
from tasks.audits.membership.config import Halves, Membership
from tasks.audits.membership.measures.attacks import Matching
from tasks.audits.membership.measures.curves import calls, histograms, references, roc
from tasks.audits.membership.measures.records import ExactTest, records
from tasks.contract.job import Inputs
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tests.dashboards import made
from tests.dashboards.test_figures import named
from tests.tasks.audits.membership.made_up import make_answers

OWN = ["influence", "roc", "scores", "references", "calls"]
ANSWERS: Inputs = make_answers(16, 100, 4.0, 1)
TABLES = {
    "records": records(ExactTest(0.05, 99, 0), ANSWERS),
    **{measure.__name__: measure(Matching(0), ANSWERS) for measure in (roc, histograms, references, calls)},
}


def run(store: Store, name: str = "membership-1", **tables: Any) -> Run:
    config = Membership(Halves(pin(Dataset("digits")), 100))
    parts = {root: [table] for root, table in tables.items()}
    return made.run(store, name, {"summary": [], **parts}, config, audit="membership")


def test_run_has_all_figures_with_numbers(store: Store) -> None:
    figures_by_name = named(run(store, **TABLES))
    assert list(figures_by_name) == OWN
    assert [name for name, figure in figures_by_name.items() if "  " in figure.caption + figure.alt] == []
    hits = int(np.count_nonzero(TABLES["records"]["found"].to_pylist()))
    assert f"{hits} of 100 records are found" in figures_by_name["influence"].alt
    for attack in LOOKS:
        assert f"{attack}: " in figures_by_name["roc"].alt
        assert f"{attack}: true-positive rate" in figures_by_name["references"].alt
    assert "16 targets" in figures_by_name["roc"].caption
    assert "800 of either kind" in figures_by_name["scores"].caption
    assert "of 8 models" in figures_by_name["calls"].alt


@pytest.mark.parametrize("name", TABLES)
def test_empty_or_foreign_table_draws_nothing(store: Store, name: str) -> None:
    filled = TABLES[name]
    all_null = pa.table({field.name: pa.nulls(filled.num_rows, field.type) for field in filled.schema}, filled.schema)
    for number, variant in enumerate((pa.table({"column": [1]}), filled.slice(0, 0), all_null)):
        assert figures(run(store, f"membership-{number}", **{name: variant})) == []


def test_gallery_has_extreme_records(store: Store) -> None:
    result = gallery(run(store, **TABLES), show_images=False)
    assert result is not None
    assert result.shown
    assert {group: sum(picture.group == group for picture in result.pictures) for group in GROUPS} == {
        GROUPS[0]: EACH,
        GROUPS[1]: EACH,
    }
    most_memorised = int(TABLES["records"]["mem"].to_numpy().argmax())
    assert f"mem {TABLES['records']['mem'][most_memorised].as_py():.2f}" in result.pictures[0].title
