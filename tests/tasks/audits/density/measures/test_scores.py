import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks import statistics
from tasks.audits.density.config import About, Density
from tasks.audits.density.log_densities import Folds
from tasks.audits.density.measures.distribution import Distribution, distribution
from tasks.audits.density.measures.losses import Losses, losses
from tasks.audits.density.measures.scores import SCORES, Scores, rows, scores
from tasks.audits.density.memorization import terms
from tasks.audits.density.trainings import trainings
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.measure import Tables
from tasks.training.density import fit
from tasks.training.density_config import Fold
from tests.tasks.audits.density import made_up, made_up_scores
from tests.tasks.summary_rows import by_name

NAN, INF = float("nan"), float("inf")
MODELS = made_up.folds(200, 5, 4)
CONFIG = Scores(MODELS, 3, permutations=199, draws=8, seed=1)
DISTRIBUTED = Distribution(MODELS, (1, 3), draws=8, seed=1)
MEMORISED = (17, 130)


def planted(seed: int = 0) -> np.ndarray:
    """Noise, in which two observations are likely to those models alone that trained on them."""
    log_p = made_up.noise(np.random.default_rng(seed), 200, 5, 4, 3.0, 2.0)
    out = np.arange(4) == made_up.held_out(MODELS)[:, :, None]
    for row in MEMORISED:
        log_p[row] += np.where(out[row], 0.0, 80.0)
    return log_p.astype(np.float32).astype(float)


LOG_P = planted(2)
TABLES = made_up.of_folds(MODELS, {1: LOG_P - LOG_P, 3: LOG_P})


def column(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(table[name].cast(pa.float64()).to_numpy(zero_copy_only=False))


def test_every_observation_has_its_scores_and_what_they_are_made_of() -> None:
    table = scores(CONFIG, TABLES)
    said = terms(LOG_P, made_up.held_out(MODELS))
    assert (SCORES, list(range(200))) == (table.schema, table["row"].to_pylist())
    assert load(made_up.DIGITS).train_labels[:200].tolist() == table["label"].to_pylist()
    for name, expected in (("log_p_trained", said.u), ("log_p_held_out", said.v), ("m", said.score)):
        assert expected == pytest.approx(column(table, name), rel=1e-12)
    assert ({15}, {5}) == (set(table["trained_models"].to_pylist()), set(table["held_out_models"].to_pylist()))
    trained, held_out = said.by_repetition
    assert trained == pytest.approx(np.array(table["trained"].to_pylist()), rel=1e-6)
    assert held_out == pytest.approx(np.array(table["held_out"].to_pylist()), rel=1e-6)
    adjusted = statistics.false_discovery_control(column(table, "p_value"))
    assert adjusted.tolist() == column(table, "p_adjusted").tolist()


def test_planted_observations_are_found_and_no_others() -> None:
    table = scores(replace(CONFIG, permutations=1024), TABLES)  # one of 4^5 assignments
    assert [1 / 1024] * 2 == column(table, "p_value")[list(MEMORISED)].tolist()
    assert set(MEMORISED) == set(np.argsort(column(table, "m_matched"))[-2:].tolist())
    # Two at the smallest p of 200 tests are adjusted to 200 / 1024 / 2.
    assert [200 / 1024 / 2] * 2 == pytest.approx(column(table, "p_adjusted")[list(MEMORISED)])
    assert 2 == (column(table, "p_adjusted") < 0.1).sum()


def test_the_order_of_the_trainings_makes_no_difference() -> None:
    assert scores(CONFIG, TABLES).equals(scores(CONFIG, TABLES[::-1]))
    assert distribution(DISTRIBUTED, TABLES).equals(distribution(DISTRIBUTED, TABLES[::-1]))


def test_another_seed_makes_other_draws() -> None:
    first, other = scores(CONFIG, TABLES), scores(replace(CONFIG, seed=2), TABLES)
    assert column(first, "m").tolist() == column(other, "m").tolist()
    for name in ("m_matched", "p_value"):
        assert column(first, name).tolist() != column(other, name).tolist()


def test_missing_trainings_are_counted_and_what_they_leave_undefined_is_null() -> None:
    fold = made_up.held_out(MODELS)
    table = scores(CONFIG, [each for at, each in enumerate(TABLES) if at not in (0, 5)])
    log_p = LOG_P.copy()
    log_p[:, 0, 0] = log_p[:, 1, 1] = NAN
    assert terms(log_p, fold).score == pytest.approx(column(table, "m"))
    lost = (fold[:, 0] == 0).astype(int) + (fold[:, 1] == 1)
    assert (5 - lost).tolist() == table["held_out_models"].to_pylist()
    assert (13 + lost).tolist() == table["trained_models"].to_pylist()
    assert (fold[:, 0] == 0).tolist() == [each[0] is None for each in table["held_out"].to_pylist()]
    only = scores(CONFIG, TABLES[:2])
    there = fold[:, 0] < 2
    for name in ("m", "m_matched", "p_value", "p_adjusted"):
        assert there.tolist() == (~np.isnan(column(only, name))).tolist()
    assert np.isnan(column(only, "log_p_held_out")).sum() == (~there).sum()


def test_an_infinite_score_is_a_number() -> None:
    log_p = LOG_P.copy()
    log_p[4] = np.where(np.arange(4) == made_up.held_out(MODELS)[4][:, None], -INF, log_p[4])
    table = scores(CONFIG, made_up.of_folds(MODELS, {3: log_p}))
    assert (INF, INF, -INF) == tuple(table[name][4].as_py() for name in ("m", "m_matched", "log_p_held_out"))
    assert 1 / 200 == pytest.approx(table["p_value"][4].as_py(), abs=0.01)
    rows = distribution(DISTRIBUTED, made_up.of_folds(MODELS, {3: log_p})).to_pylist()
    found = {row["statistic"]: row for row in rows if row["score"] == "published" and row["label"] is None}
    assert (INF, None, 200) == tuple(found["highest"][name] for name in ("estimate", "low", "observations"))
    assert 199 == found["mean"]["observations"]
    assert np.isfinite(found["mean"]["estimate"])
    assert [200] == [row["observations"] for row in rows if row["score"] == "gain"]


def test_data_without_classes_have_no_labels() -> None:
    models = replace(made_up.folds(60, 2, 3), data=Dataset("photos"))
    tables = made_up.of_folds(models, {1: made_up.noise(np.random.default_rng(0), 60, 2, 3, 1.0)})
    assert [None] * 60 == scores(Scores(models, 1, 9, 2), tables)["label"].to_pylist()
    assert {None} == set(distribution(Distribution(models, (1,), 2), tables)["label"].to_pylist())


def test_an_epoch_at_which_nothing_was_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="no training was asked about the observations at epoch 2"):
        scores(replace(CONFIG, epoch=2), TABLES)
    with pytest.raises(ValueError, match="no training was asked about the observations at epoch 2 or 4"):
        distribution(replace(DISTRIBUTED, epochs=(2, 4)), TABLES)
    assert {1} == set(distribution(replace(DISTRIBUTED, epochs=(1, 2)), TABLES)["epoch"].to_pylist())


def leave_one_out(seed: int = 0) -> tuple[Sequence[pa.Table], np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    whole, without = chance.normal(-50, 2, (4, 24)), chance.normal(-50, 2, (3, 4, 24))
    without[1, :, 7] -= 30.0
    return made_up.of_alone(made_up.alone(), whole, without), whole, without


def test_leave_one_out_scores_the_rows_that_were_left_out() -> None:
    tables, whole, without = leave_one_out()
    table = scores(Scores(made_up.alone(), 2, 99, 8), tables)
    assert [3, 7, 20] == table["row"].to_pylist()
    for place, row in enumerate((3, 7, 20)):
        log_p = np.stack([whole[:, row], without[place, :, row]], axis=1)[None]
        expected = terms(log_p, np.ones((1, 4), int)).score[0]
        assert expected == pytest.approx(table["m"][place].as_py(), abs=1e-4)
        assert table["m"][place].as_py() == pytest.approx(table["m_matched"][place].as_py())
    assert 1 / 2**4 == table["p_value"][1].as_py()
    rows = distribution(Distribution(made_up.alone(), (2,)), tables).to_pylist()
    (gain,) = (row for row in rows if row["score"] == "gain")
    gains = [whole[:, row] - without[place, :, row] for place, row in enumerate((3, 7, 20))]
    assert np.mean(gains) == pytest.approx(gain["estimate"], abs=1e-4)
    assert gain["p_value"] < 0.01
    assert 4 == gain["n"]


@pytest.mark.parametrize("link", [0, 1])
def test_what_trainings_say_is_scored(link: int) -> None:
    density = Density(
        made_up.DIGITS, repetitions=2, folds=2, examples=60, epochs=2, every=1, link=link, batch=20, samples=4
    )
    planned = trainings(density)
    assert planned is not None
    models, tables = planned.models, [fit(job.config, ()) for job in planned.fits]
    table = scores(Scores(models, 2, 99, 8), tables)
    assert ({2}, {2}) == (set(table["trained_models"].to_pylist()), set(table["held_out_models"].to_pylist()))
    assert np.isfinite(column(table, "m")).all()
    assert [1, 2] == sorted(set(distribution(Distribution(models, (1, 2)), tables)["epoch"].to_pylist()))
    assert [4] * 6 == losses(Losses(), tables)["n"].to_pylist()


def test_the_highly_memorised_within_the_central_nine_tenths_are_counted() -> None:
    # Of 40 observations the 38th and 39th have the largest M; the central 90 % of U are 2 to 37.
    def central(*memorised: int) -> list[Any]:
        m = [9.0 if at in memorised else 0.0 for at in range(40)]
        table = made_up_scores.scores([float(at) for at in range(40)], m)
        found = by_name(rows(Tables([table]), About(planned=0, smallest=0.5)))
        return found["highly memorised within the central log p", '{"share": 0.9}']

    assert [1.0, None, None, 0, "repetition", None, None, None] == pytest.approx(central(2, 37))
    assert [0.5, None, None, 0, "repetition", None, None, None] == pytest.approx(central(20, 39))


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the peak is in other units")
def test_the_peak_of_memory_is_far_below_that_of_all_answers() -> None:
    """Ten by ten models, 5,000 observations, two epochs, in a process of its own.

    Beside what they are given the tasks need 1.3 and 1.6 times an epoch's answers; 6.7 and 7 times in one block.
    """
    n = 5_000
    code = f"import {__name__} as test; test.measure({n})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needed = dict(line.split() for line in done.stdout.splitlines())
    assert {"scores", "distribution"} == set(needed)
    assert max(map(int, needed.values())) < 3 * n * 100 * np.dtype(np.float64).itemsize


def measure(n: int) -> None:
    """Print what each task needs, on a line each."""
    needed_for(1000)  # what they import is in memory from here on
    for name, needed in needed_for(n).items():
        sys.stdout.write(f"{name} {needed}\n")


def needed_for(n: int) -> dict[str, int]:
    """By how many bytes each task raises the peak of memory, its inputs being there before."""
    models = Folds(Dataset("photos"), n, tuple(range(10)), 10)
    chance = np.random.default_rng(0)
    tables = []
    for seed in range(100):
        said = {epoch: chance.standard_normal(n) for epoch in (1, 2)}
        tables.append(made_up.table(Fold(seed // 10, 10, seed % 10), seed, said, 2))
    before = peak()
    needed = {}
    assert n == scores(Scores(models, 2, 99, 2), tables).num_rows
    needed["scores"] = peak() - before
    assert distribution(Distribution(models, (1, 2), 2), tables).num_rows
    needed["distribution"] = peak() - before
    return needed


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_the_table_has_how_many_samples_log_p_is_effectively_from() -> None:
    models = made_up.folds(60, 1, 3)
    log_p, effective = np.random.default_rng(0).normal(-90, 3, (3, 60)), np.arange(60.0)
    of_codes, without = (
        [
            made_up.table(Fold(100, 3, fold), fold, {2: log_p[fold]}, 2, {2: (fold + 1) * effective} if told else None)
            for fold in range(3)
        ]
        for told in (True, False)
    )
    found, plain = (scores(Scores(models, 2, 99, 4), tables) for tables in (of_codes, without))
    assert (2 * effective).tolist() == found["effective_samples"].to_pylist()
    assert 60 == plain["effective_samples"].null_count
    assert found.drop_columns(["effective_samples"]).equals(plain.drop_columns(["effective_samples"]))
