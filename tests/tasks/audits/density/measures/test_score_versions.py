"""What the tasks that score compute, beside their versions: neither may change without the other.

A test here that fails says that stored results are no longer what the task would compute. If that is meant, raise the
task's version and write the new numbers below.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from tasks.audits.density.measures.distribution import Distribution, distribution
from tasks.audits.density.measures.losses import Losses, losses
from tasks.audits.density.measures.scores import Scores, scores
from tasks.job import marks
from tests.tasks.audits.density import made_up

PLACES = 1 + np.arange(2000) % 7
MODELS = made_up.folds(90, 3, 5)


def tables() -> list[pa.Table]:
    log_p = made_up.noise(np.random.default_rng(7), 90, 3, 5, 4.0, 2.0)
    return made_up.of_folds(MODELS, {1: log_p - 5, 2: log_p})


def scored() -> pa.Table:
    # Fewer permutations and draws than there are, so that chance has a part.
    return scores(Scores(MODELS, 2, permutations=99, draws=6, seed=3), tables())


def distributed() -> pa.Table:
    return distribution(Distribution(MODELS, (1, 2), draws=6, seed=3), tables())


def lost() -> pa.Table:
    return losses(Losses(), tables())


def total(table: pa.Table) -> float:
    """One number that all measured ones of a table move, and where they stand: a sum weighed by column and by row."""
    flat = [
        pa.compute.list_flatten(column) if pa.types.is_list(column.type) else column
        for column in table.columns
        if pa.types.is_list(column.type) or pa.types.is_floating(column.type)
    ]
    every = [column.to_numpy().astype(np.float64) for column in flat]
    numbers = [np.where(np.isinf(each), 1000.0, each) for each in every]  # where no memory could be found
    return float(sum(weight * np.nansum(each * PLACES[: len(each)]) for weight, each in enumerate(numbers, start=1)))


@pytest.mark.parametrize(
    ("function", "version", "computed", "rows", "expected"),
    [
        (scores, 5, scored, 90, -9416827.398623072),
        (distribution, 2, distributed, 242, 9672.83613773),
        (losses, 1, lost, 6, 77868.37833707),
    ],
)
def test_a_task_computes_what_its_version_says(
    function: Callable[..., pa.Table], version: int, computed: Callable[[], pa.Table], rows: int, expected: float
) -> None:
    table = computed()
    assert version == marks(function).version
    assert [rows, expected] == pytest.approx([table.num_rows, total(table)], rel=1e-6)
