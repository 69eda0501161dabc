"""Which runs have published numbers, and the consistency of these numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.audits.forgetting import AUDIT, PRESETS
from tasks.audits.forgetting.audited import Given
from tasks.audits.forgetting.config import Examples, Forgetting
from tasks.audits.forgetting.presets import (
    NULL,
    TABLE1,
    TABLE2,
    numbers_by_name,
    numbers_by_target,
    printed_cell,
)
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.forgetting.target import Target
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tests.support.settings import with_settings


@pytest.mark.parametrize("name", PRESETS)
def test_tiny_scale_keeps_the_targets(name: str) -> None:
    for config in AUDIT.cells(name):
        assert getattr(AUDIT.tiny(config).audited, "targets", ()) == getattr(config.audited, "targets", ())


@pytest.mark.parametrize(("cell", "count"), [("table 1", 8), ("table 2", 7)])
def test_printed_rho_follows_from_printed_distances(cell: str, count: int) -> None:
    printed = numbers_by_target(cell)
    assert count == len(printed)
    assert [item.rho for item in printed.values()] == [
        round(item.ks / printed[NULL].ks, 3) for item in printed.values()
    ]


def test_numbers_are_listed_by_target_name() -> None:
    assert numbers_by_name("table 2")[str(Target(query=0.1, calibration=1.0))] == (0.579, 0.750)
    assert numbers_by_name("") == {}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TABLE1, "table 1"),
        (with_settings(TABLE1, targets=(NULL,), replicates=2, seed=3, decimals=5, link=5), "table 1"),
        (replace(TABLE1, query=QuerySet(Dataset("mnist", "0f"), control=None)), "table 1"),
        (TABLE2, "table 2"),
        (replace(TABLE1, question=Examples()), ""),
        (with_settings(TABLE1, epochs=3), ""),
        (with_settings(TABLE1, calibration_share=0.5), ""),
        (with_settings(TABLE1, audited=Given()), ""),
        (replace(TABLE1, query=QuerySet(Dataset("mnist"))), ""),
        (replace(TABLE1, query=QuerySet(Dataset("mnist"), 0, 1000, control=None)), ""),
        (with_settings(TABLE1, outside=Part(Dataset("photos"))), ""),
        (Forgetting(query=QuerySet(Dataset("digits"))), ""),
    ],
)
def test_published_table_needs_equal_data_and_training(config: Forgetting, expected: str) -> None:
    assert printed_cell(config.question, config) == expected
