from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.planning.identity import canonical
from orchestrator.spec.config_parts import plain
from orchestrator.spec.fields import coerce
from tasks.audits.density.log_densities import BLOCK, Folds, LeaveOneOut, LogDensities, ReleasedFolds, labels
from tasks.audits.density.measures.distribution import Distribution
from tasks.audits.density.measures.scores import Scores
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.training.density_config import Fold, ReleasedFold, Row, released_fold_of
from tests.tasks.audits.density import made_up

NAN = float("nan")
MODELS = made_up.folds()
LOG_P = made_up.noise(np.random.default_rng(0), 60, 3, 4, 5.0).astype(np.float32).astype(float)


def gather(answers: LogDensities, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(answers.blocks(epoch))
    return np.concatenate([block.log_p for block in blocks]), np.concatenate([block.held_out for block in blocks])


def test_models_keep_their_position_in_any_table_order() -> None:
    tables = made_up.fold_tables(MODELS, {2: LOG_P})
    for order in (range(12), reversed(range(12)), np.random.default_rng(1).permutation(12)):
        log_p, held_out = gather(LogDensities(MODELS, [tables[index] for index in order]), 2)
        assert LOG_P.tolist() == log_p.tolist()
        assert made_up.held_out(MODELS).tolist() == held_out.tolist()


def test_missing_trainings_leave_nan() -> None:
    tables = made_up.fold_tables(MODELS, {2: LOG_P})
    log_p, _ = gather(LogDensities(MODELS, tables[:5] + tables[6:]), 2)
    assert np.isnan(log_p[:, 1, 1]).all()
    assert np.isnan(log_p).sum() == 60


def test_links_of_a_training_are_combined() -> None:
    early = 2 * LOG_P
    late = LOG_P
    tables = made_up.fold_tables(MODELS, {1: early}) + made_up.fold_tables(MODELS, {3: late})
    answers = LogDensities(MODELS, tables[:-1])  # the last training's second link failed
    assert early.tolist() == gather(answers, 1)[0].tolist()
    assert np.isnan(gather(answers, 3)[0][:, 2, 3]).all()
    assert late[:, :2].tolist() == gather(answers, 3)[0][:, :2].tolist()
    assert answers.recorded_at(1)
    assert not answers.recorded_at(2)
    assert answers.recorded_at(3)


def test_blocks_cover_all_observations_in_order() -> None:
    n = 2 * BLOCK + 7
    models = Folds(Dataset("digits"), n, (5,), 2)
    log_p = np.arange(2 * n, dtype=float).reshape(n, 1, 2)
    blocks = list(LogDensities(models, made_up.fold_tables(models, {1: log_p})).blocks(1))
    assert [(b.places.start, b.places.stop) for b in blocks] == [(0, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK, n)]
    assert [log_p_block.number for log_p_block in blocks] == [0, 1, 2]
    assert log_p.tolist() == np.concatenate([log_p_block.log_p for log_p_block in blocks]).tolist()


def test_model_without_a_row_evaluates_that_row() -> None:
    models = made_up.single_row_models()
    rng = np.random.default_rng(0)
    of_all_data = np.round(rng.normal(-50, 9, (4, 24)))
    without_row = np.round(rng.normal(-60, 9, (3, 4, 24)))
    tables = made_up.single_row_tables(models, of_all_data, without_row)
    del tables[4 + 4 + 1]  # row 7, trial 1: the later trials move up
    log_p, held_out = gather(LogDensities(models, tables[::-1]), 2)
    rows = list(models.left_out)
    assert of_all_data[:, rows].T.tolist() == log_p[:, :, 0].tolist()
    assert np.ones((3, 4)).tolist() == held_out.tolist()
    assert without_row[0, :, 3].tolist() == log_p[0, :, 1].tolist()
    assert log_p[1, :, 1].tolist() == pytest.approx([*without_row[1, [0, 2, 3], 7], NAN], nan_ok=True)
    assert without_row[2, :, 20].tolist() == log_p[2, :, 1].tolist()


def test_labels_belong_to_the_observations() -> None:
    images = load(made_up.DIGITS)
    assert images.train_labels[:60].tolist() == labels(MODELS).tolist()  # type: ignore[union-attr]
    test = replace(MODELS, asked="test")
    assert images.test_labels[:60].tolist() == labels(test).tolist()  # type: ignore[union-attr]
    assert images.train_labels[[3, 7, 20]].tolist() == labels(made_up.single_row_models()).tolist()  # type: ignore[union-attr]
    assert labels(replace(MODELS, data=Dataset("photos"))) is None
    with pytest.raises(ValueError, match="observations is 9999; digits has 1437 training images"):
        labels(replace(MODELS, observations=9999))


@pytest.mark.parametrize(
    ("held_out", "seed", "epochs", "n", "message"),
    [
        (Fold(99, 4, 0), 1, 2, 60, "the training of seed 1 held out no fold of these partitions"),
        (Fold(100, 5, 4), 1, 2, 60, "the training of seed 1 held out no fold of these partitions"),
        (None, 1, 2, 60, "the training of seed 1 held out no fold of these partitions"),
        (Row(3), 1, 2, 60, "the training of seed 1 held out no fold of these partitions"),
        (Fold(100, 4, 0), 1, 2, 60, "fold 0 of repetition 0 has two trainings, of seeds 0 and 1"),
        (Fold(100, 4, 0), 0, 2, 59, "the training of seed 0 scored 59 observations at epoch 2; expected 60"),
    ],
)
def test_trainings_of_other_partitions_are_refused(
    held_out: Fold | Row | None, seed: int, epochs: int, n: int, message: str
) -> None:
    tables = made_up.fold_tables(MODELS, {2: LOG_P})
    with pytest.raises(ValueError, match=message):
        LogDensities(MODELS, [*tables, made_up.table(held_out, seed, {epochs: np.zeros(n)}, epochs)])


def test_trainings_without_other_rows_are_refused() -> None:
    models = made_up.single_row_models()
    tables = made_up.single_row_tables(models, np.zeros((4, 24)), np.zeros((3, 4, 24)))
    for held_out in (Row(4), Fold(100, 4, 0)):
        with pytest.raises(ValueError, match="seed 9 held out none of these rows"):
            LogDensities(models, [*tables, made_up.table(held_out, 9, {2: np.zeros(24)}, 2)])
    for row, data_description in ((None, "all data"), (Row(7), "all but row 7")):
        with pytest.raises(ValueError, match=f"there are 5 trainings on {data_description}; repetitions is 4"):
            LogDensities(models, [*tables, made_up.table(row, 9, {2: np.zeros(24)}, 2)])


def test_other_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="input 1 is not the table of a training"):
        LogDensities(MODELS, [*made_up.fold_tables(MODELS, {2: LOG_P})[:1], pa.table({"log_p": [1.0]})])


@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_invalid_log_p_is_reported(value: float) -> None:
    log_p = LOG_P.copy()
    log_p[41, 1, 2] = value
    answers = LogDensities(MODELS, made_up.fold_tables(MODELS, {2: log_p}))
    message = f"log p of observation 41 is {value} at epoch 2 by the training of seed 1002; it must be a number or -inf"
    with pytest.raises(ValueError, match=message):
        list(answers.blocks(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(MODELS, partitions=()), "partitions is empty"),
        (lambda: replace(MODELS, partitions=(1, 1)), "partitions has a seed twice"),
        (lambda: replace(MODELS, folds=1), "folds is 1; it must be from 2 to 60, the observations"),
        (lambda: replace(MODELS, folds=61), "folds is 61; it must be from 2 to 60, the observations"),
        (lambda: replace(MODELS, asked="all"), "asked is 'all'; it must be one of train, test"),  # type: ignore[arg-type]
        (lambda: made_up.single_row_models(()), "left_out is empty; at least one row must be left out"),
        (lambda: made_up.single_row_models((7, 3)), "left_out must be rows in ascending order, each once"),
        (lambda: made_up.single_row_models((3, 24)), "row 24 is left out; the rows are 0 to 23"),
        (lambda: made_up.single_row_models(repetitions=0), "repetitions is 0; it must be at least 1"),
        (lambda: Scores(MODELS, 0), "epoch is 0; it must be at least 1"),
        (lambda: Scores(MODELS, 1, permutations=0), "permutations is 0; it must be at least 1"),
        (lambda: Scores(MODELS, 1, draws=0), "draws is 0; it must be at least 1"),
        (lambda: Distribution(MODELS, ()), r"epochs is \(\); it must be at least one epoch from 1 on, ascending"),
        (lambda: Distribution(MODELS, (2, 1)), r"epochs is \(2, 1\); it must be"),
        (lambda: Distribution(MODELS, (1,), draws=0), "draws is 0; it must be at least 1"),
    ],
)
def test_impossible_configs_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_estimator_survives_reading_a_config() -> None:
    for models in (MODELS, made_up.single_row_models(), ReleasedFolds(made_up.DIGITS, 60, (0, 1), 10)):
        config = Scores(models, 2)
        assert config == coerce(plain(config), Scores, "config")
    assert canonical(Scores(MODELS, 2)) != canonical(Scores(made_up.single_row_models(), 2))
    assert isinstance(made_up.single_row_models(), LeaveOneOut)


def test_released_folds_are_ordered_by_partition_and_fold() -> None:
    models = ReleasedFolds(made_up.DIGITS, 60, (0, 1, 2), 10)
    log_p = np.random.default_rng(3).normal(-100, 5, (60, 3, 10))
    tables = []
    for repetition in range(3):
        for fold in range(10):
            tables.append(
                made_up.table(
                    ReleasedFold(repetition, 10, fold), 10 * repetition + fold, {1: log_p[:, repetition, fold]}, 1
                )
            )
    (block,) = LogDensities(models, tables[::-1]).blocks(1)
    assert (block.log_p == log_p.astype(np.float32)).all()
    assert [released_fold_of(repetition, 60).tolist() for repetition in range(3)] == block.held_out.T.tolist()


def test_effective_samples_are_the_median_over_models() -> None:
    models = made_up.folds(60, 1, 3)
    log_p = np.full(60, -9.0)
    effective = np.arange(60.0)
    tables = []
    for fold in range(3):
        tables.append(made_up.table(Fold(100, 3, fold), fold, {1: log_p, 2: log_p}, 2, {2: (fold + 1) * effective}))
    assert (2 * effective).tolist() == LogDensities(models, tables).effective_samples(2).tolist()
    assert (1.5 * effective).tolist() == LogDensities(models, tables[:2]).effective_samples(2).tolist()
    assert np.isnan(LogDensities(models, tables).effective_samples(1)).all()  # models without codes


def test_single_rows_use_own_and_all_data_models() -> None:
    models = made_up.single_row_models((3, 7), 24, 2)
    log_p = np.full(24, -9.0)
    tables = [
        made_up.table(None, 0, {1: log_p}, 1, {1: np.full(24, 10.0)}),
        made_up.table(Row(3), 1, {1: log_p}, 1, {1: np.full(24, 2.0)}),
        made_up.table(Row(3), 2, {1: log_p}, 1, {1: np.full(24, 4.0)}),
        made_up.table(Row(7), 3, {1: log_p}, 1, {1: np.full(24, 6.0)}),
    ]
    assert LogDensities(models, tables).effective_samples(1).tolist() == [4.0, 8.0]
