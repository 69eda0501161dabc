"""The summary of all tables: its rows, their counts, and the paper's numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.density.config import About
from tasks.audits.density.measures import MEASURES, summary
from tasks.audits.density.measures.distribution import DISTRIBUTION, Distribution, distribution
from tasks.audits.density.measures.duplicates import Duplicates, duplicates
from tasks.audits.density.measures.kernel_density import Kernel, points
from tasks.audits.density.measures.learning import Constant, learning
from tasks.audits.density.measures.losses import losses
from tasks.audits.density.measures.neighbours import Ratios, ratios
from tasks.audits.density.measures.scores import SCORES, Scores, scores
from tasks.audits.density.presets import CELLS
from tasks.contract.job import NoSettings, marks
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Row
from tasks.models.catalog import DensityModel
from tasks.training.recipe import Privacy
from tests.tasks.audits.density import made_up

CONFIG = About(planned=12, smallest=0.015625)


def summary_rows(config: About, *tables: pa.Table) -> dict[tuple[str, str], Row]:
    """The rows by metric and setting; every row has a different name."""
    table = summary(config, tables)
    assert table.schema == SUMMARY
    rows = {(row["metric"], row["setting"]): row for row in table.to_pylist()}
    assert table.num_rows == len(rows)
    return rows


def row_key(metric: str, **setting: Any) -> tuple[str, str]:
    return metric, json.dumps(setting, sort_keys=True)


def distribution_rows(*rows: Sequence[Any]) -> pa.Table:
    """Rows of DISTRIBUTION for all observations: epoch, score, statistic, estimate, null."""
    names = ("epoch", "score", "statistic", "estimate", "null")
    common = {"label": None, "low": 1.0, "high": 9.0, "n": 3, "observations": 60, "p_value": None}
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) | common for row in rows], DISTRIBUTION)


def score_rows(*rows: Mapping[str, Any]) -> pa.Table:
    common = {"trained_models": 9, "held_out_models": 3, "log_p_trained": -90.0, "m": 1.0, "p_adjusted": 0.5}
    return pa.Table.from_pylist(
        [dict.fromkeys(SCORES.names) | common | {"row": n} | r for n, r in enumerate(rows)], SCORES
    )


# Scores


def test_gap_and_scores_have_their_null_values() -> None:
    table = distribution_rows(
        (4, "published", "mean", 5.0, 4.5), (4, "matched", "mean", 0.5, 0.1), (4, "gain", "mean", 2, 0)
    )
    rows = summary_rows(CONFIG, table)
    setting = {"statistic": "mean"}
    assert [row_key(metric, **setting) for metric in ("generalisation gap of log p", "matched-count M", "M")] == list(
        rows
    )
    # Without memorisation, the expected gain and matched-count score are 0 by construction.
    assert [row["null"] for row in rows.values()] == [0.0, 0.0, 4.5]
    assert {(r["unit"], r["n"], r["low"], r["high"]) for r in rows.values()} == {("repetition", 3, 1.0, 9.0)}


def test_other_statistics_have_redrawn_null_values() -> None:
    table = distribution_rows((4, "published", "median", 5.0, 4.5), (4, "matched", "median", 0.5, -0.25))
    assert [row["null"] for row in summary_rows(CONFIG, table).values()] == [-0.25, 4.5]


def test_earlier_epochs_show_only_peaks() -> None:
    table = distribution_rows(
        (2, "published", "quantile 0.95", 3.0, None),
        (2, "matched", "quantile 0.999", 4.0, None),
        (2, "published", "median", 1.0, None),
        (2, "gain", "mean", 0.5, None),
        (4, "published", "quantile 0.95", 6.0, 5.0),
    )
    assert [
        row_key("M", statistic="quantile 0.95"),
        row_key("M", epoch=2, statistic="quantile 0.95"),
        row_key("matched-count M", epoch=2, statistic="quantile 0.999"),
    ] == list(summary_rows(CONFIG, table))


def test_labels_stay_in_their_table() -> None:
    table = distribution_rows((4, "published", "median", 5.0, 4.5))
    of_label = table.set_column(2, "label", pa.array([7], pa.int32()))
    assert len(summary_rows(CONFIG, pa.concat_tables([table, of_label]))) == 1


@pytest.mark.parametrize("cell", ["", *CELLS])
def test_papers_numbers_belong_to_its_score_only(cell: str) -> None:
    statistics = ("mean", "median", "lowest", "highest", "quantile 0.95")
    rows = []
    for epoch in (2, 4):
        for score in ("published", "matched"):
            for statistic in statistics:
                rows.append((epoch, score, statistic, 1.0, None))
    rows_by_name = summary_rows(About(12, 0.01, cell), distribution_rows(*rows, (4, "gain", "mean", 1.0, 0.0)))
    numbers = {}
    for key, row in rows_by_name.items():
        if row["published"] is not None:
            numbers[key] = row["published"]
    expected = CELLS[cell][1] if cell else {}
    assert {row_key("M", statistic=statistic): number for statistic, number in expected.items()} == numbers


# Significance


def test_false_discoveries_are_limited_to_5_percent() -> None:
    rows_by_key = summary_rows(
        CONFIG, score_rows({"p_adjusted": 0.05}, {"p_adjusted": 0.01}, {"p_adjusted": 0.06}, {"p_adjusted": None})
    )
    share = rows_by_key[row_key("observations memorised", **{"false discoveries": 0.05})]
    assert tuple(share[n] for n in ("estimate", "n", "low", "null", "unit")) == (2 / 3, 3, None, 0.0, "observation")
    assert rows_by_key[row_key("smallest possible p-value")]["estimate"] == 0.015625
    without_score = rows_by_key[row_key("observations without a score")]
    assert without_score["estimate"] == 1.0
    assert without_score["n"] == 4
    assert row_key("models of an observation, at least", planned=12) not in rows_by_key


def test_effective_samples_are_shown_for_models_with_codes() -> None:
    rows = []
    for number in (1.0, 9.5, 10.0, 30.0, 200.0, None):
        rows.append({"effective_samples": number})
    rows_by_key = summary_rows(CONFIG, score_rows(*rows))
    median, few_samples = (
        rows_by_key[row_key("effective samples of log p", **s)] for s in ({"statistic": "median"}, {"below": 10})
    )
    assert median["estimate"] == 10.0
    assert median["n"] == 5
    assert median["unit"] == "observation"
    assert few_samples["estimate"] == 2 / 5
    assert few_samples["n"] == 5
    assert few_samples["unit"] == "observation"
    assert not [metric for metric, _ in summary_rows(CONFIG, score_rows({}, {})) if "effective" in metric]


def test_missing_models_are_counted() -> None:
    rows_by_key = summary_rows(CONFIG, score_rows({}, {"trained_models": 8, "held_out_models": 2}))
    fewest_models = rows_by_key[row_key("models of an observation, at least", planned=12)]
    assert fewest_models["estimate"] == 10.0
    assert fewest_models["n"] == 12
    assert fewest_models["unit"] == "training"


def test_scores_of_no_observation_are_empty_rows() -> None:
    rows_by_key = summary_rows(CONFIG, score_rows({"m": None, "p_adjusted": None, "log_p_trained": None}))
    share = rows_by_key[row_key("observations memorised", **{"false discoveries": 0.05})]
    assert share["estimate"] is None
    assert share["n"] == 0
    central = rows_by_key[row_key("highly memorised within the central log p", share=0.9)]
    assert central["estimate"] is None
    assert central["n"] == 0
    assert central["null"] is None


# Privacy


def test_epsilon_rows_need_private_trainings() -> None:
    table = score_rows({"m": 9.0, "trained": [-90.0, -91.0], "held_out": [-100.0, -99.0]})
    private = About(planned=4, smallest=0.015625, privacy=Privacy(2.0, 1e-5))
    promise = {"delta": 1e-5, "epsilon": 2.0}
    rows = {row_key("largest M of a row left out", **promise, row=0), row_key("rows above epsilon", **promise)}
    rows.add(row_key("epsilon by the accountant", delta=1e-5))
    for bound in ("many runs", "many runs, Gaussian"):
        bound_setting: dict[str, Any] = {"bound": bound, "confidence": 0.95, "delta": 1e-5}
        rows |= {
            row_key("epsilon, at least", **bound_setting),
            row_key("epsilon that so many could show", **bound_setting),
        }
    assert rows == summary_rows(private, table).keys() - summary_rows(CONFIG, table).keys()


def test_no_table_gives_no_row() -> None:
    assert summary_rows(CONFIG) == {}


# All tables together, from synthetic trainings


def all_tables(lost_fits: Sequence[int] = ()) -> dict[str, pa.Table]:
    """A table of each measure that the summary reads, without the trainings in `lost_fits`."""
    models = made_up.folds(90, 3, 4)
    log_p = made_up.noise(np.random.default_rng(7), 90, 3, 4, 4.0, 2.0)
    fits = made_up.fold_tables(models, {1: log_p - 5, 2: log_p})
    fits = [fit for number, fit in enumerate(fits) if number not in lost_fits]
    score_table = scores(Scores(models, 2, permutations=63, draws=6, seed=3), fits)
    neighbour_table = made_up.neighbours([1 + row / 90 for row in range(90)])
    return {
        "scores": score_table,
        "learning": learning(Constant(made_up.DIGITS, DensityModel("vae"), 90, "train"), [score_table]),
        "distribution": distribution(Distribution(models, (1, 2), draws=6, seed=3), fits),
        "losses": losses(NoSettings(), fits),
        "neighbours": neighbour_table,
        "ratios": ratios(Ratios(), [score_table, neighbour_table]),
        "duplicates": duplicates(Duplicates(made_up.DIGITS, 60), ()),
        "points": points(Kernel(), ()),
    }


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return all_tables()


SUMMARISED = {measure.name: measure for measure in MEASURES if measure.rows is not None}


def rows_of(measure: Measure, tables: Iterable[pa.Table]) -> list[Row]:
    assert measure.rows is not None
    return list(measure.rows(Tables(list(tables)), CONFIG))


@pytest.mark.parametrize("left_out", SUMMARISED)
def test_missing_table_removes_only_its_rows(left_out: str, tables: Mapping[str, pa.Table]) -> None:
    assert SUMMARISED.keys() == tables.keys()
    assert all(rows_of(measure, tables.values()) for measure in SUMMARISED.values())
    remaining = {name: table for name, table in tables.items() if name != left_out}
    other_rows = []
    for name in SUMMARISED:
        if name != left_out:
            other_rows.extend(rows_of(SUMMARISED[name], tables.values()))
    if left_out in ("scores", "neighbours"):  # these two are combined
        combined_metrics = "correlation of M and the neighbour ratio", "neighbour ratio"
        other_rows = [row for row in other_rows if row["metric"] not in combined_metrics]
    assert other_rows == summary(CONFIG, list(remaining.values())).to_pylist()
    assert rows_of(SUMMARISED[left_out], remaining.values()) == []


def test_rows_stay_together_with_answers_first(tables: Mapping[str, pa.Table]) -> None:
    measure_rows = []
    for measure in SUMMARISED.values():
        measure_rows.extend(rows_of(measure, tables.values()))
    assert measure_rows == summary(CONFIG, list(tables.values())).to_pylist()
    assert measure_rows[0]["metric"] == "observations memorised"


def test_table_order_makes_no_difference(tables: Mapping[str, pa.Table]) -> None:
    assert summary(CONFIG, list(tables.values())) == summary(CONFIG, list(tables.values())[::-1])


def test_missing_trainings_add_one_row(tables: Mapping[str, pa.Table]) -> None:
    full = summary_rows(CONFIG, *tables.values())
    partial = summary_rows(CONFIG, *all_tables(lost_fits=(0, 7)).values())
    fewest_models = row_key("models of an observation, at least", planned=12)
    assert set(partial) - set(full) - {row_key("observations without a score")} == {fewest_models}
    assert set(full) <= set(partial)
    assert partial[fewest_models]["estimate"] == 10


def weighted_sum(table: pa.Table) -> float:
    """A sum of all numbers, weighted by column and row, so that every change and move of a number shows."""
    weights = 1 + np.arange(table.num_rows) % 7
    columns = [column for column in table.columns if not pa.types.is_string(column.type)]
    numbers = [column.to_numpy().astype(float) for column in columns]
    return float(sum(weight * np.nansum(column_numbers * weights) for weight, column_numbers in enumerate(numbers, 1)))


def test_task_computes_the_table_of_its_version(tables: Mapping[str, pa.Table]) -> None:
    # A failure means that stored summaries differ from newly computed ones. If this is intended, raise its
    # version.
    table = summary(About(12, 0.015625, "MNIST, 1e-4"), list(tables.values())[:6])
    assert marks(summary).name == "density.summary"
    assert marks(summary).version == 6
    assert pytest.approx([table.num_rows, weighted_sum(table)], rel=1e-6) == [40, 68630.06889406934]
