"""What the tables say together: whose rows there are, what they count, and when the paper's number stands beside."""

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


def told(config: About, *tables: pa.Table) -> dict[tuple[str, str], Row]:
    """The rows by metric and setting; each has a name of its own."""
    found = summary(config, tables)
    assert found.schema == SUMMARY
    rows = {(row["metric"], row["setting"]): row for row in found.to_pylist()}
    assert found.num_rows == len(rows)
    return rows


def named(metric: str, **setting: Any) -> tuple[str, str]:
    return metric, json.dumps(setting, sort_keys=True)


def distributed(*rows: Sequence[Any]) -> pa.Table:
    """Rows of DISTRIBUTION of all observations: epoch, score, statistic, estimate, null."""
    names = ("epoch", "score", "statistic", "estimate", "null")
    rest = {"label": None, "low": 1.0, "high": 9.0, "n": 3, "observations": 60, "p_value": None}
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) | rest for row in rows], DISTRIBUTION)


def scored(*rows: Mapping[str, Any]) -> pa.Table:
    whole = {"trained_models": 9, "held_out_models": 3, "log_p_trained": -90.0, "m": 1.0, "p_adjusted": 0.5}
    return pa.Table.from_pylist(
        [dict.fromkeys(SCORES.names) | whole | {"row": n} | r for n, r in enumerate(rows)], SCORES
    )


# Scores


def test_the_gap_and_both_scores_are_told_with_what_they_are_without_memory() -> None:
    table = distributed((4, "published", "mean", 5.0, 4.5), (4, "matched", "mean", 0.5, 0.1), (4, "gain", "mean", 2, 0))
    found = told(CONFIG, table)
    setting = {"statistic": "mean"}
    assert [named(metric, **setting) for metric in ("generalisation gap of log p", "matched-count M", "M")] == list(
        found
    )
    # On average the gain and the matched-count score are 0 where nothing is memorised, by how they are made.
    assert [row["null"] for row in found.values()] == [0.0, 0.0, 4.5]
    assert {("repetition", 3, 1.0, 9.0)} == {(r["unit"], r["n"], r["low"], r["high"]) for r in found.values()}


def test_any_other_statistic_is_beside_what_redrawing_gives() -> None:
    table = distributed((4, "published", "median", 5.0, 4.5), (4, "matched", "median", 0.5, -0.25))
    assert [row["null"] for row in told(CONFIG, table).values()] == [-0.25, 4.5]


def test_of_earlier_epochs_only_the_peaks_are_told() -> None:
    table = distributed(
        (2, "published", "quantile 0.95", 3.0, None),
        (2, "matched", "quantile 0.999", 4.0, None),
        (2, "published", "median", 1.0, None),
        (2, "gain", "mean", 0.5, None),
        (4, "published", "quantile 0.95", 6.0, 5.0),
    )
    assert [
        named("M", statistic="quantile 0.95"),
        named("M", epoch=2, statistic="quantile 0.95"),
        named("matched-count M", epoch=2, statistic="quantile 0.999"),
    ] == list(told(CONFIG, table))


def test_labels_stay_in_their_table() -> None:
    table = distributed((4, "published", "median", 5.0, 4.5))
    of_label = table.set_column(2, "label", pa.array([7], pa.int32()))
    assert len(told(CONFIG, pa.concat_tables([table, of_label]))) == 1


@pytest.mark.parametrize("cell", ["", *CELLS])
def test_the_papers_numbers_stand_beside_its_statistics_of_its_score_alone(cell: str) -> None:
    statistics = ("mean", "median", "lowest", "highest", "quantile 0.95")
    rows = [
        (epoch, score, each, 1.0, None) for epoch in (2, 4) for score in ("published", "matched") for each in statistics
    ]
    found = told(About(12, 0.01, cell), distributed(*rows, (4, "gain", "mean", 1.0, 0.0)))
    numbers = {key: row["published"] for key, row in found.items() if row["published"] is not None}
    expected = CELLS[cell][1] if cell else {}
    assert {named("M", statistic=each): number for each, number in expected.items()} == numbers


# Significance


def test_observations_are_counted_at_five_per_cent_false_discoveries() -> None:
    found = told(CONFIG, scored({"p_adjusted": 0.05}, {"p_adjusted": 0.01}, {"p_adjusted": 0.06}, {"p_adjusted": None}))
    share = found[named("observations memorised", **{"false discoveries": 0.05})]
    assert tuple(share[n] for n in ("estimate", "n", "low", "null", "unit")) == (2 / 3, 3, None, 0.0, "observation")
    assert found[named("smallest possible p-value")]["estimate"] == 0.015625
    without = found[named("observations without a score")]
    assert (without["estimate"], without["n"]) == (1.0, 4)
    assert named("models of an observation, at least", planned=12) not in found


def test_how_many_samples_log_p_is_effectively_from_is_told_of_models_with_codes() -> None:
    rows = [{"effective_samples": number} for number in (1.0, 9.5, 10.0, 30.0, 200.0, None)]
    found = told(CONFIG, scored(*rows))
    median, below = (found[named("effective samples of log p", **s)] for s in ({"statistic": "median"}, {"below": 10}))
    assert (median["estimate"], median["n"], median["unit"]) == (10.0, 5, "observation")
    assert (below["estimate"], below["n"], below["unit"]) == (2 / 5, 5, "observation")
    assert not [metric for metric, _ in told(CONFIG, scored({}, {})) if "effective" in metric]


def test_models_that_are_missing_are_told() -> None:
    found = told(CONFIG, scored({}, {"trained_models": 8, "held_out_models": 2}))
    lacking = found[named("models of an observation, at least", planned=12)]
    assert (lacking["estimate"], lacking["n"], lacking["unit"]) == (10.0, 12, "training")


def test_scores_of_nobody_have_rows_without_numbers() -> None:
    found = told(CONFIG, scored({"m": None, "p_adjusted": None, "log_p_trained": None}))
    share = found[named("observations memorised", **{"false discoveries": 0.05})]
    assert (share["estimate"], share["n"]) == (None, 0)
    central = found[named("highly memorised within the central log p", share=0.9)]
    assert (central["estimate"], central["n"], central["null"]) == (None, 0, None)


# Privacy


def test_epsilon_stands_beside_rows_of_private_trainings_alone() -> None:
    table = scored({"m": 9.0, "trained": [-90.0, -91.0], "held_out": [-100.0, -99.0]})
    private = About(planned=4, smallest=0.015625, privacy=Privacy(2.0, 1e-5))
    promise = {"delta": 1e-5, "epsilon": 2.0}
    rows = {named("largest M of a row left out", **promise, row=0), named("rows above epsilon", **promise)}
    rows.add(named("epsilon by the accountant", delta=1e-5))
    for bound in ("many runs", "many runs, Gaussian"):
        at: dict[str, Any] = {"bound": bound, "confidence": 0.95, "delta": 1e-5}
        rows |= {named("epsilon, at least", **at), named("epsilon that so many could show", **at)}
    assert rows == told(private, table).keys() - told(CONFIG, table).keys()


def test_of_no_table_there_is_no_row() -> None:
    assert told(CONFIG) == {}


# All together, of trainings that were made up


def whole(missing: Sequence[int] = ()) -> dict[str, pa.Table]:
    """A table of each measure that the summary reads, without what these trainings gave."""
    models = made_up.folds(90, 3, 4)
    log_p = made_up.noise(np.random.default_rng(7), 90, 3, 4, 4.0, 2.0)
    fits = made_up.of_folds(models, {1: log_p - 5, 2: log_p})
    fits = [fit for number, fit in enumerate(fits) if number not in missing]
    ranked = scores(Scores(models, 2, permutations=63, draws=6, seed=3), fits)
    near = made_up.neighbours([1 + row / 90 for row in range(90)])
    return {
        "scores": ranked,
        "learning": learning(Constant(made_up.DIGITS, DensityModel("vae"), 90, "train"), [ranked]),
        "distribution": distribution(Distribution(models, (1, 2), draws=6, seed=3), fits),
        "losses": losses(NoSettings(), fits),
        "neighbours": near,
        "ratios": ratios(Ratios(), [ranked, near]),
        "duplicates": duplicates(Duplicates(made_up.DIGITS, 60), ()),
        "points": points(Kernel(), ()),
    }


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return whole()


READ = {measure.name: measure for measure in MEASURES if measure.rows is not None}


def rows_of(measure: Measure, tables: Iterable[pa.Table]) -> list[Row]:
    assert measure.rows is not None
    return list(measure.rows(Tables(list(tables)), CONFIG))


@pytest.mark.parametrize("missing", READ)
def test_without_one_of_the_tables_there_are_the_rows_of_all_others(
    missing: str, tables: Mapping[str, pa.Table]
) -> None:
    assert READ.keys() == tables.keys()
    assert all(rows_of(measure, tables.values()) for measure in READ.values())
    rest = {name: table for name, table in tables.items() if name != missing}
    others = [row for name in READ if name != missing for row in rows_of(READ[name], tables.values())]
    if missing in ("scores", "neighbours"):  # which are put together
        together = "correlation of M and the neighbour ratio", "neighbour ratio"
        others = [row for row in others if row["metric"] not in together]
    assert others == summary(CONFIG, list(rest.values())).to_pylist()
    assert rows_of(READ[missing], rest.values()) == []


def test_the_rows_of_a_table_stay_together_and_the_answers_are_the_first(tables: Mapping[str, pa.Table]) -> None:
    together = [row for measure in READ.values() for row in rows_of(measure, tables.values())]
    assert together == summary(CONFIG, list(tables.values())).to_pylist()
    assert together[0]["metric"] == "observations memorised"


def test_the_order_of_the_tables_makes_no_difference(tables: Mapping[str, pa.Table]) -> None:
    assert summary(CONFIG, list(tables.values())) == summary(CONFIG, list(tables.values())[::-1])


def test_where_trainings_are_missing_the_rows_are_the_same_and_one_more(tables: Mapping[str, pa.Table]) -> None:
    full, partial = told(CONFIG, *tables.values()), told(CONFIG, *whole(missing=(0, 7)).values())
    lacking = named("models of an observation, at least", planned=12)
    assert {lacking} == set(partial) - set(full) - {named("observations without a score")}
    assert set(full) <= set(partial)
    assert partial[lacking]["estimate"] == 10


def total(table: pa.Table) -> float:
    """One number that every number of the table moves, and in which row it is."""
    places = 1 + np.arange(table.num_rows) % 7
    columns = [column for column in table.columns if not pa.types.is_string(column.type)]
    numbers = [column.to_numpy().astype(float) for column in columns]
    return float(sum(weight * np.nansum(each * places) for weight, each in enumerate(numbers, 1)))


def test_the_task_computes_what_its_version_says(tables: Mapping[str, pa.Table]) -> None:
    # Where this fails stored summaries are no longer what the task would compute. If that is meant, raise its version.
    table = summary(About(12, 0.015625, "MNIST, 1e-4"), list(tables.values())[:6])
    assert (marks(summary).name, marks(summary).version) == ("density.summary", 6)
    assert pytest.approx([table.num_rows, total(table)], rel=1e-6) == [40, 68630.06889406934]
