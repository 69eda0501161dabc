"""Only the last epoch's losses are told, with the gap by a name of its own."""

from __future__ import annotations

from tasks.audits.density.estimates.losses import losses
from tasks.audits.density.losses import LOSSES
from tests.tasks.summary_rows import by_name


def test_the_losses_of_the_last_epoch_and_the_gap_are_told_as_they_were_estimated() -> None:
    rows = [
        (3, "folds", "train", 90.0, 89.0, 91.0, 4),
        (10, "folds", "train", 80.0, 79.0, 81.0, 4),
        (10, "folds", "test", 85.0, 84.0, 86.0, 5),
        (10, "folds", "gap", 5.0, 4.5, 5.5, 6),
        (10, "whole", "gap", 6.0, None, None, 1),
    ]
    table = LOSSES.empty_table().from_pylist([dict(zip(LOSSES.names, row, strict=True)) for row in rows], LOSSES)
    assert {
        ("loss", '{"models": "folds", "split": "train"}'): [80.0, 79.0, 81.0, 4, "training", *[None] * 3],
        ("loss", '{"models": "folds", "split": "test"}'): [85.0, 84.0, 86.0, 5, "training", *[None] * 3],
        ("generalisation gap", '{"models": "folds"}'): [5.0, 4.5, 5.5, 6, "training", *[None] * 3],
        ("generalisation gap", '{"models": "whole"}'): [6.0, None, None, 1, "training", *[None] * 3],
    } == by_name(losses(table))
    assert [] == list(losses(LOSSES.empty_table()))
