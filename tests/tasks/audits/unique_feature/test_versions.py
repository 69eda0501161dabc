"""What each task computes, beside its version: neither may change without the other.

A test here that fails says that stored results are no longer what the task would compute. If that is meant, raise the
task's version and write the new numbers below.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.canaries import CanaryScores, canary_scores
from tasks.audits.unique_feature.evaluation import Evaluation, Pair, history, score
from tasks.audits.unique_feature.summary import Summary, summary
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph
from tasks.job import marks
from tests.tasks.audits.unique_feature import made_up


def scored() -> pa.Table:
    data, probe = pin(Dataset("digits")), pin(Dataset("photos"))
    canary = int(np.flatnonzero(load(data).train_labels == made_up.LABEL)[2])
    config = Evaluation(data, probe, "test", Glyph(), canary, examples=100, seed=1)
    return score(config, [made_up.reads_the_letter(3.0), made_up.reads_the_letter(1.0)])


def of_each_epoch() -> pa.Table:
    epochs = [{"epoch": i, "train_loss": 0.5, "validation_loss": 0.25 * i, "validation_accuracy": 0.5} for i in (1, 2)]
    model = made_up.reads_the_letter(1.0)
    field = model.schema.field("history")
    filled = model.set_column(model.schema.get_field_index("history"), field, pa.array([epochs], field.type))
    return history(Pair(3), [filled, filled])


def of_each_canary() -> pa.Table:
    return canary_scores(CanaryScores(), [made_up.pair(i, 0.01 * i, 0.005) for i in range(1, 5)])


def of_all() -> pa.Table:
    return summary(Summary("table 1, MNIST"), [of_each_canary()])


def total(table: pa.Table) -> float:
    """One number that all measured ones of a table move: their sum, each column counted once more than the last."""
    columns = [table[name] for name in table.column_names if pa.types.is_floating(table[name].type)]
    return float(
        sum(
            weight * np.nansum(column.to_numpy(zero_copy_only=False).astype(np.float64))
            for weight, column in enumerate(columns, start=1)
        )
    )


@pytest.mark.parametrize(
    ("function", "version", "computed", "rows", "expected"),
    [
        (score, 1, scored, 1076, -9023.31372),
        (history, 1, of_each_epoch, 4, 11.0),
        (canary_scores, 1, of_each_canary, 4, 2399.401724),
        (summary, 1, of_all, 45, 160.254311),
    ],
)
def test_a_task_computes_what_its_version_says(
    function: Callable[..., pa.Table], version: int, computed: Callable[[], pa.Table], rows: int, expected: float
) -> None:
    table = computed()
    assert (version, rows) == (marks(function).version, table.num_rows)
    assert expected == pytest.approx(total(table), rel=1e-6)
