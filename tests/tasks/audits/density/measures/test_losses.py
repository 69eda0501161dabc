import pyarrow as pa
import pytest
from numpy import zeros
from scipy import stats

from tasks.audits.density.measures.losses import LOSSES, losses, rows
from tasks.contract.job import NoSettings
from tasks.contract.measure import Tables
from tasks.training.density_config import Fold, Row
from tests.tasks.audits.density import made_up
from tests.tasks.summary_rows import by_name

N = zeros(4)


def test_losses_are_means_over_trainings_at_every_epoch() -> None:
    # The training of seed s has the loss 1 / epoch + s, and 2 / epoch + s on the test split.
    tables = []
    for fold, seed in ((0, 1), (1, 4)):
        tables.append(made_up.table(Fold(1, 2, fold), seed, {2: N}, 2))
    table = losses(NoSettings(), [made_up.table(None, 9, {}, 2), *tables])
    rows = table.to_pylist()
    assert table.schema == LOSSES
    expected = []
    for models in ("folds", "whole"):
        for epoch in (1, 2):
            for split in ("train", "test", "gap"):
                expected.append((epoch, models, split))
    assert expected == [(row["epoch"], row["models"], row["split"]) for row in rows]
    assert pytest.approx([row["estimate"] for row in rows]) == [
        3.5,
        4.5,
        1.0,
        3.0,
        3.5,
        0.5,
        10.0,
        11.0,
        1.0,
        9.5,
        10.0,
        0.5,
    ]
    assert [row["n"] for row in rows] == [2] * 6 + [1] * 6
    half = stats.t.ppf(0.975, 1) * 1.5  # of 2 and 5: standard error 1.5
    assert [3.5 - half, 3.5 + half] == pytest.approx([rows[0]["low"], rows[0]["high"]])
    assert rows[6]["low"] is None
    assert rows[6]["high"] is None


def test_links_of_a_training_count_once() -> None:
    links = [made_up.table(Fold(1, 2, 0), 3, {end: N}, end) for end in (1, 3)]
    rows = losses(NoSettings(), links).to_pylist()
    assert [row["n"] for row in rows] == [1] * 9
    assert pytest.approx([row["estimate"] for row in rows[:2]]) == [4.0, 5.0]


def test_training_order_makes_no_difference() -> None:
    tables = []
    for fold in range(3):
        tables.append(made_up.table(Fold(1, 3, fold), 7 * fold % 5, {2: N}, 2))
    assert losses(NoSettings(), tables).equals(losses(NoSettings(), tables[::-1]))


def test_models_without_a_row_count_as_folds() -> None:
    tables = [made_up.table(Row(3), 1, {2: N}, 2), made_up.table(None, 2, {2: N}, 2)]
    assert {row["models"]: row["n"] for row in losses(NoSettings(), tables).to_pylist()} == {"folds": 1, "whole": 1}


def test_other_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="input 0 is not the table of a training"):
        losses(NoSettings(), [pa.table({"epoch": [1]})])


def test_last_losses_and_gap_are_unchanged() -> None:
    means = [
        (3, "folds", "train", 90.0, 89.0, 91.0, 4),
        (10, "folds", "train", 80.0, 79.0, 81.0, 4),
        (10, "folds", "test", 85.0, 84.0, 86.0, 5),
        (10, "folds", "gap", 5.0, 4.5, 5.5, 6),
        (10, "whole", "gap", 6.0, None, None, 1),
    ]
    table = pa.Table.from_pylist([dict(zip(LOSSES.names, row, strict=True)) for row in means], LOSSES)
    assert by_name(rows(Tables([table]), None)) == {
        ("loss", '{"models": "folds", "split": "train"}'): [80.0, 79.0, 81.0, 4, "training", *[None] * 3],
        ("loss", '{"models": "folds", "split": "test"}'): [85.0, 84.0, 86.0, 5, "training", *[None] * 3],
        ("generalisation gap", '{"models": "folds"}'): [5.0, 4.5, 5.5, 6, "training", *[None] * 3],
        ("generalisation gap", '{"models": "whole"}'): [6.0, None, None, 1, "training", *[None] * 3],
    }
    assert list(rows(Tables([LOSSES.empty_table()]), None)) == []
