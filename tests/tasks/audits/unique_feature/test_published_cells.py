"""Cells with published numbers, and the run in the documentation."""

from __future__ import annotations

from orchestrator.planning.identity import run_id
from tasks.audits.unique_feature import AUDIT
from tasks.audits.unique_feature.presets import PRINTED, PUBLISHED, printed_cell, published_numbers
from tests.support.plans import preset_plan
from tests.support.settings import with_settings
from tests.support.shell import ROOT


def test_printed_numbers_belong_to_their_cells() -> None:
    for name, config in PRINTED.items():
        assert name == printed_cell(config)
    for preset in ("table1", "table2", "table3"):
        assert all(printed_cell(config).startswith(preset.replace("table", "table ")) for config in AUDIT.cells(preset))
    assert 20 == len(PRINTED) == len(PUBLISHED)
    assert published_numbers(printed_cell(AUDIT.cells("table3")[-1])).m_where_positive == 1.7
    assert printed_cell(*AUDIT.cells("quickstart")) == ""


def test_linked_training_repeats_the_printed_one() -> None:
    for name, config in PRINTED.items():
        assert printed_cell(with_settings(config, link=100)) == name


def test_quickstart_is_the_run_in_the_docs() -> None:
    (config,) = AUDIT.cells("quickstart")
    run = run_id("unique_feature", list(preset_plan("unique_feature", "quickstart").jobs), config)
    assert f"\n{run}: 63 jobs" in (ROOT / "docs" / "unique_feature.md").read_text()
