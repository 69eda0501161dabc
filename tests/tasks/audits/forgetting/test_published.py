from dataclasses import replace

import pytest

from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.presets import TABLE1, TABLE2
from tasks.audits.forgetting.published import CALIBRATION, numbers_by_name, numbers_by_target, printed_cell
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.forgetting.target import Target
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part


@pytest.mark.parametrize(("cell", "count"), [("table 1", 8), ("table 2", 7)])
def test_every_printed_rho_follows_from_the_printed_distances(cell: str, count: int) -> None:
    printed = numbers_by_target(cell)
    assert count == len(printed)
    assert [each.rho for each in printed.values()] == [
        round(each.ks / printed[CALIBRATION].ks, 3) for each in printed.values()
    ]


def test_numbers_are_known_by_the_names_of_targets() -> None:
    assert (0.579, 0.750) == numbers_by_name("table 2")[str(Target(query=0.1, calibration=1.0))]
    assert {} == numbers_by_name("")


def test_a_run_repeats_the_table_whose_data_and_training_it_has() -> None:
    assert "table 1" == printed_cell(TABLE1)
    assert "table 1" == printed_cell(
        replace(TABLE1, targets=(CALIBRATION,), replicates=2, seed=3, negligible=0.2, link=5)
    )
    assert "table 1" == printed_cell(replace(TABLE1, query=QuerySet(Dataset("mnist", "0f"), held_back=0.0)))
    assert "table 2" == printed_cell(TABLE2)
    assert "" == printed_cell(replace(TABLE1, measures=("examples",)))
    assert "" == printed_cell(replace(TABLE1, epochs=3))
    assert "" == printed_cell(replace(TABLE1, query=QuerySet(Dataset("mnist"))))
    assert "" == printed_cell(replace(TABLE1, query=QuerySet(Dataset("mnist"), 0, 1000, held_back=0.0)))
    assert "" == printed_cell(replace(TABLE1, outside=Part(Dataset("photos"))))
    assert "" == printed_cell(Forgetting(query=QuerySet(Dataset("digits"))))
