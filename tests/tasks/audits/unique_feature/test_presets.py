"""Every preset plans what the paper trained, and twins beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.planning.identity import run_id
from orchestrator.planning.plan import Plan
from orchestrator.spec.resolve import Cell, pin_cells
from tasks.audits.unique_feature import PRESETS, UniqueFeature, plan
from tasks.audits.unique_feature.presets import PRINTED, PUBLISHED, printed_cell, published_numbers
from tasks.contract.job import Job, marks
from tests.support.shell import ROOT
from tests.tasks.audits.unique_feature import published_data

PUBLISHED_PRESETS = [name for name in PRESETS if name.startswith(("table", "figure", "section", "estimators"))]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_data.write(tmp_path_factory.mktemp("published"))


@pytest.fixture(autouse=True)
def _in_place(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(data))


@pytest.fixture(scope="module")
def digests() -> dict[str, str]:
    return {}


def cells(name: str) -> tuple[UniqueFeature, ...]:
    found = PRESETS[name]
    return found if isinstance(found, tuple) else (found,)


def whole(names: Iterable[str], digests: dict[str, str]) -> Plan:
    """The plan of these presets together."""
    asked = [Cell("unique_feature", config) for name in names for config in cells(name)]
    return Plan.union(Plan.from_roots(plan(cell.config)) for cell in pin_cells(asked, digests))


def trainings(planned: Plan) -> Counter[str]:
    """Networks to train, by what they are for."""
    found: Counter[str] = Counter()
    for job in planned.jobs.values():
        name = marks(job.function).name
        if name == "classifier.train":
            found["canary" if job.config.burnt else "twin"] += 1
        elif name == "unique_feature.train_ranked":
            found["canary"] += 1
        elif name == "unique_feature.train_twin":
            found["twin"] += 1
        elif name == "unique_feature.influence":
            found["base" if job.config.canary is None else "traced again"] += 1
        elif name == "unique_feature.course":
            found["course"] += 1
    return found


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("table1", {"canary": 200, "twin": 200}),
        ("table1-mnist", {"canary": 100, "twin": 100}),
        ("table2", {"canary": 180, "twin": 180, "base": 6}),
        ("table2-mnist", {"canary": 30, "twin": 30, "base": 1}),
        ("table3", {"canary": 450, "twin": 450, "base": 15}),  # with the three plain cells of Table 2
        ("figure2", {}),
        ("figure3a", {"canary": 150, "twin": 150}),
        ("figure3b", {"canary": 100, "twin": 100}),
        ("figure3c", {"course": 2}),
        ("figure4", {"canary": 200, "twin": 200}),
        ("figure5", {"canary": 500, "twin": 500}),
        ("figure6", {"canary": 500, "twin": 500}),
        ("section33", {"canary": 90, "twin": 90, "base": 3, "traced again": 6}),
        ("estimators", {"canary": 200, "twin": 200}),
    ],
)
def test_a_preset_plans_its_trainings(preset: str, expected: dict[str, int], digests: dict[str, str]) -> None:
    assert expected == trainings(whole([preset], digests))


def test_every_published_preset_is_counted() -> None:
    counted = {
        mark.args[1][at][0] for mark in test_a_preset_plans_its_trainings.pytestmark for at in range(len(mark.args[1]))
    }
    assert set(PUBLISHED_PRESETS) == counted


def test_together_they_are_the_papers_trainings_and_equal_ones_are_shared(digests: dict[str, str]) -> None:
    # Hartley & Tsaftaris: 100 canaries by 5 seeds on two data sets serve Table 1 and Figures 3a, 4, 5 and 6.
    random = trainings(whole(["table1", "figure3a", "figure4", "figure5", "figure6"], digests))
    assert {"canary": 1000, "twin": 1000} == random
    # 18 cells of 30 canaries, ranked on a canary-free network each.
    ranked = trainings(whole(["table2", "table3"], digests))
    assert {"canary": 540, "twin": 540, "base": 18} == ranked
    # Section 3.3 adds two, of MNIST; here each of its three cells has them.
    more = trainings(whole(["table2", "section33"], digests)) - trainings(whole(["table2"], digests))
    assert {"traced again": 6} == more
    # The letter A's trainings of the estimators are those of Table 1.
    both = trainings(whole(["table1", "estimators"], digests))
    assert {"canary": 300, "twin": 300} == both


def test_every_printed_number_stands_beside_the_cell_that_repeats_it() -> None:
    for name, config in PRINTED.items():
        assert name == printed_cell(config)
    for preset in ("table1", "table2", "table3"):
        assert all(printed_cell(config).startswith(preset.replace("table", "table ")) for config in cells(preset))
    assert 20 == len(PRINTED) == len(PUBLISHED)
    assert 1.7 == published_numbers(printed_cell(cells("table3")[-1])).m_where_positive
    assert "" == printed_cell(PRESETS["quickstart"])  # type: ignore[arg-type]


def test_a_cell_whose_trainings_are_in_links_repeats_the_printed_one(digests: dict[str, str]) -> None:
    (cell,) = pin_cells([Cell("unique_feature", replace(cells("table1")[0], link=100))], digests)
    summary = plan(cell.config)["summary"]
    assert isinstance(summary, Job)
    assert printed_cell(cells("table1")[0]) == summary.config.cell != ""


def test_the_quickstart_is_the_run_that_the_docs_show(digests: dict[str, str]) -> None:
    (cell,) = pin_cells([Cell("unique_feature", PRESETS["quickstart"])], digests)  # type: ignore[arg-type]
    run = run_id("unique_feature", list(Plan.from_roots(plan(cell.config)).jobs))
    assert f"\n{run}: 63 jobs" in (ROOT / "docs" / "unique_feature.md").read_text()
