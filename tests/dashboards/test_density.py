"""What is drawn of density's tables, and that the words beside it have the tables' numbers."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image

from dashboards import drawing
from dashboards.audits.density.curves import loss_limits, read_losses
from dashboards.audits.density.observations import Observations, Statistics, describe_outside, robust_limits
from dashboards.audits.density.outliers import example_bins
from dashboards.audits.density.pictures import score_extremes
from dashboards.chart import Figure
from dashboards.figures import figures
from dashboards.gallery import Gallery, Picture
from dashboards.page import gallery
from dashboards.run import Run
from orchestrator.store import Store
from tasks.audits.density.config import Density, KFold, Memorization, ModelTraining, SingleRows
from tasks.audits.density.highly_memorised import highly_memorised_mask
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tests.dashboards import made, pages, scored, test_gallery
from tests.dashboards.labels import words
from tests.dashboards.test_figures import named
from tests.support.golden import Golden

TABLES = ("scores", "distribution", "losses", "outliers", "ratios", "duplicates", "kernel")
DIGITS = pin(Dataset("digits"))
OWN = ["distribution", "significance", "labels", "course", "losses", "outliers", "neighbours", "duplicates", "kernel"]


def run(store: Store, name: str = "density-1", config: Density | None = None, **tables: Any) -> Run:
    parts = {root: table if isinstance(table, list) else [table] for root, table in tables.items()}
    return made.run(store, name, {"summary": [], **parts}, config or scored.embedded(), audit="density")


def drawn(store: Store, **tables: Any) -> dict[str, Figure]:
    return named(run(store, **tables))


def test_a_whole_run_has_all_its_figures(store: Store) -> None:
    found = drawn(store, **scored.tables(600))
    assert list(found) == OWN
    assert [name for name, figure in found.items() if "  " in figure.caption + figure.alt] == []


@pytest.mark.parametrize("name", TABLES)
def test_a_table_without_rows_or_with_other_columns_draws_nothing(store: Store, name: str) -> None:
    (whole,) = scored.tables(60)[name]
    assert figures(run(store, **{name: pa.table({"column": [1]})})) == []
    assert figures(run(store, "density-2", **{name: whole.slice(0, 0)})) == []
    nothing = pa.table({field.name: pa.nulls(whole.num_rows, field.type) for field in whole.schema}, whole.schema)
    assert figures(run(store, "density-3", **{name: nothing})) == []


def test_the_distribution_says_the_median_with_its_interval_and_null(store: Store) -> None:
    values = scored.values(2000)
    found = drawn(store, scores=scored.scores(2000), distribution=scored.distribution(2000, (10,)))["distribution"]
    median = drawing.format_number(float(np.median(values["m"])))
    assert f"M as published: median {median} [" in found.alt
    assert "null of the median 2.8" in found.alt
    above = int((values["m_matched"] > 0).sum())
    assert f"{above:,} of 2,000" in found.alt
    assert "median without memorisation" in words(found)


def test_without_the_table_of_statistics_the_scores_are_drawn_all_the_same(store: Store) -> None:
    found = drawn(store, scores=scored.scores(50))
    assert {"distribution", "significance", "labels"} == set(found)
    assert "null" not in found["distribution"].alt
    assert "median without memorisation" not in words(found["distribution"])


def test_scores_that_are_not_defined_are_left_out(golden: Golden, store: Store) -> None:
    table = scored.scores(50)
    m = pa.array([None, float("-inf"), *table["m"].to_pylist()[2:]], pa.float64())
    table = table.set_column(table.schema.get_field_index("m"), table.schema.field("m"), m)
    found = drawn(store, scores=table)
    golden(found["distribution"].caption, "caption")
    golden(found["significance"].caption, "caption")


def test_an_axis_is_cut_where_a_few_values_lie_far_away() -> None:
    near, far = np.linspace(0, 10, 5000), np.concatenate([np.linspace(0, 10, 5000), [900.0]])
    assert robust_limits([near])[1] == pytest.approx(10.3)
    cut = robust_limits([far])
    assert cut[1] < 11
    assert describe_outside(far, cut) == "1 above it, up to 900"
    assert describe_outside(near, robust_limits([near])) == ""
    assert robust_limits([near], [-5.0])[0] < -5


def test_what_lies_beyond_the_axis_is_said(store: Store) -> None:
    table = scored.scores(5000)
    m = np.array(table["m"].to_pylist())
    m[7] = 6500.0
    table = table.set_column(table.schema.get_field_index("m"), table.schema.field("m"), pa.array(m))
    found = drawn(store, scores=table)["distribution"]
    assert "up to 6.5e+03" in found.caption
    assert "to 6.5e+03" in found.alt


def test_significance_counts_what_remains_when_many_are_asked(golden: Golden, store: Store) -> None:
    n = 400
    p = np.concatenate([np.full(20, 1e-4), np.linspace(0.1, 1, n - 20)])
    columns = {"row": range(n), "m": np.arange(n)[::-1].astype(float), "p_value": p}
    columns["p_adjusted"] = np.concatenate([np.full(20, 2e-3), np.ones(n - 20)])
    found = drawn(store, scores=pa.table(columns))["significance"]
    golden(found.alt, "found.alt")
    golden(found.caption, "found.caption")


def test_the_procedure_of_false_discoveries_is_the_one_that_adjusted(golden: Golden, store: Store) -> None:
    p = pa.array(np.full(12, 0.0125))
    table = pa.table({"p_value": p, "p_adjusted": p, "m": np.arange(12.0)})
    loo = named(run(store, "density-2", Density(Memorization(estimator=SingleRows(12))), scores=table))[
        "significance"
    ].caption
    folds = drawn(store, scores=table)["significance"].caption
    golden(folds, "folds")
    # 12 x 0.0125 / 0.05 = 3, times 1 + 1/2 + ... + 1/12 = 3.103
    golden(loo, "loo")


def test_the_highly_memorised_of_a_page_are_those_of_the_tables() -> None:
    for m in ([*range(98), np.inf, np.inf], [*range(90), *[np.inf] * 10], [*range(20), np.nan, np.inf]):
        values = np.array(m, float)
        there = ~np.isnan(values)
        high = Observations(pa.table({"row": np.arange(len(values)), "m_matched": values})).high
        assert highly_memorised_mask(values[there]).tolist() == high[there].tolist()
        assert np.isinf(values[high]).any()
        assert not high[~there].any()


def test_labels_stand_in_the_order_of_their_medians(golden: Golden, store: Store) -> None:
    label = np.repeat([3, 5], 10)
    matched = np.concatenate([np.arange(10.0), np.arange(10.0) + 100])
    table = pa.table({"row": range(20), "label": label, "m": matched + 1, "m_matched": matched})
    found = drawn(store, scores=table)["labels"]
    golden(found.alt)
    texts = words(found)
    assert texts.index("label 3") >= 0
    golden(found.caption, "found.caption")


def test_data_without_labels_have_no_figure_of_them(store: Store) -> None:
    assert "labels" not in drawn(store, scores=scored.scores(60, labelled=False))


def test_the_course_says_where_it_began_and_ended(golden: Golden, store: Store) -> None:
    table = scored.distribution(500, (5, 10, 20))
    found = drawn(store, distribution=table)["course"]
    high = float(np.quantile(scored.values(500)["m"], 0.95))
    followed = Statistics(table).curve("published", "quantile 0.95")
    assert followed is not None
    assert followed.places.tolist() == [5, 10, 20]
    assert high == pytest.approx(followed.value[-1])
    golden(found.alt)
    assert "10 repetitions" in found.caption
    assert "null 2.8" in found.alt


def test_one_epoch_is_no_course_and_one_repetition_has_no_interval(golden: Golden, store: Store) -> None:
    assert drawn(store, distribution=scored.distribution(100, (10,))) == {}
    once = run(store, "density-2", distribution=scored.distribution(100, (1, 2), 1))
    golden(named(once)["course"].caption)


def test_the_losses_say_the_gap_and_where_the_test_loss_was_lowest(golden: Golden, store: Store) -> None:
    found = drawn(store, losses=scored.losses(100, gap=4.0))["losses"]
    golden(found.alt, "found.alt")
    golden(found.caption, "found.caption")


def test_the_first_losses_do_not_press_the_rest_together() -> None:
    found = read_losses(scored.losses(100))
    low, high = loss_limits(list(found.values()))
    assert max(float(each.value[0]) for each in found.values()) > 150 > high
    assert min(float(each.value.min()) for each in found.values()) > low


def test_losses_without_a_model_of_all_data_are_drawn(store: Store) -> None:
    table = pa.Table.from_pylist(
        [row for row in scored.losses(10, 1).to_pylist() if row["models"] == "folds"], scored.LOSSES
    )
    found = drawn(store, losses=table)["losses"]
    assert "Model of all data" not in found.alt
    assert "intervals" not in found.caption


def test_the_highly_memorised_are_counted_by_how_likely_they_are(golden: Golden, store: Store) -> None:
    table = scored.outliers(3000)
    found = drawn(store, outliers=table, scores=scored.scores(3000))["outliers"]
    rows = table.to_pylist()
    texts = words(found)
    assert all(f"{row['memorised']:,}" in texts for row in rows if row["memorised"])
    golden(found.caption)
    values = scored.values(3000)
    u, high = values["log_p_trained"], values["m"] > np.quantile(values["m"], 0.95)
    low, top = np.quantile(u, (0.05, 0.95))
    inside = int(((u >= low) & (u <= top) & high).sum())
    assert f"{inside} of 150" in found.caption
    assert re.search(r"Among U .*: highly memorised rows \d+, .*; regular rows \d+, ", found.alt)


def test_bins_are_drawn_from_the_lowest_up_whatever_their_order(store: Store) -> None:
    table = scored.outliers(3000)
    there = [name for name, _ in example_bins(table, 3)]
    backwards = table.take(list(range(table.num_rows))[::-1])
    assert there == [name for name, _ in example_bins(backwards, 3)]
    one = drawn(store, outliers=table)["outliers"]
    assert one.alt == named(run(store, "density-2", outliers=backwards))["outliers"].alt


def test_many_bins_are_drawn_without_words_over_one_another(store: Store) -> None:
    found = drawn(store, outliers=scored.outliers(3000, width=1.0, bins=120))["outliers"]
    assert len([text for text in words(found) if " to " in text or text[0] in "<≥"]) <= 12
    assert float(re.findall(r'viewBox="0 0 \d+\S* (\d+)', found.svg)[0]) < 600


def test_neighbours_say_how_many_bins_differ_from_one(golden: Golden, store: Store) -> None:
    bins = [
        {"group": "bin", "low": low, "high": low + 2, "mean": mean, "standard_error": error, "n": n}
        for low, mean, error, n in ((0.0, 0.9, 0.01, 900), (2.0, 1.0, 0.01, 90), (4.0, 1.2, 0.01, 9), (6.0, 3, None, 1))
    ]
    found = drawn(store, ratios=pa.Table.from_pylist(bins, scored.RATIOS))["neighbours"]
    golden(found.alt)
    assert "Highly memorised" not in found.caption


def test_a_bin_far_from_all_others_is_not_drawn_and_said(store: Store) -> None:
    near = scored.ratios(5000).to_pylist()
    far = {"group": "bin", "low": 6500.0, "high": 6502.0, "mean": 1.4, "n": 1}
    found = drawn(store, ratios=pa.Table.from_pylist([*near, far], scored.RATIOS))["neighbours"]
    assert "to 6.5e+03 nats" in found.caption
    assert not any(text.startswith("6") and len(text) >= 4 for text in words(found))


def test_the_quantiles_of_both_kinds_are_in_the_words(golden: Golden, store: Store) -> None:
    rows = [
        {"group": group, "n": n, "mean": 1.0, "quantiles": (np.linspace(0, 1, 101) + shift).tolist()}
        for group, n, shift in (("memorised", 5, 1.0), ("regular", 95, 0.5))
    ]
    found = drawn(store, ratios=pa.Table.from_pylist(rows, scored.RATIOS))["neighbours"]
    golden(found.alt)


def test_duplicates_tell_exact_ones_and_different_labels(golden: Golden, store: Store) -> None:
    found = drawn(store, duplicates=scored.duplicates(30))["duplicates"]
    golden(found.alt, "found.alt")
    bare = named(run(store, "density-2", duplicates=scored.duplicates(30, labelled=False)))["duplicates"]
    assert "different labels" not in bare.alt
    assert "pairs, 30" in words(bare)


def test_of_very_many_pairs_the_first_are_drawn(golden: Golden, store: Store) -> None:
    found = drawn(store, duplicates=scored.duplicates(2000))["duplicates"]
    golden(found.caption)
    assert len(found.svg) < 60_000


def test_the_kernels_point_has_the_logarithm_of_the_ratio_for_its_score(golden: Golden, store: Store) -> None:
    table = scored.kernel()
    x, with_it, without = (np.array(table[name].to_pylist()) for name in ("x", "with_point", "without_point"))
    at = int(np.abs(x - 4).argmin())
    found = drawn(store, kernel=table)["kernel"]
    golden(found.alt)
    assert f"M {np.log(with_it[at] / without[at]):.3g} nats" in found.alt


def cells(store: Store, count: int) -> Run:
    return made.sweep(
        store,
        "density-sweep-1",
        [
            made.run(
                store,
                f"density-{at}",
                scored.tables(300, spread=1.0 + at, seed=at),
                scored.embedded(training=ModelTraining(learning_rate=10.0**-at)),
                {"learning_rate": 10.0**-at},
                audit="density",
            )
            for at in range(count)
        ],
    )


def test_a_sweep_lays_its_cells_over_one_another(golden: Golden, store: Store) -> None:
    found = named(cells(store, 2))
    assert list(found) == ["densities", "courses", "losses"]
    golden(found["densities"].title)
    for figure in found.values():
        assert {"learning_rate 1", "learning_rate 0.1"} <= set(words(figure))
    golden(found["densities"].alt, "alt")
    assert "gap 4" in found["losses"].alt
    golden(found["courses"].alt, "alt")


def test_a_sweep_of_many_cells_has_a_row_for_each(store: Store) -> None:
    found = named(cells(store, 7))
    assert list(found) == ["densities"]
    assert "A row is a cell" in found["densities"].caption
    assert "learning_rate 1e-06" in words(found["densities"])


def test_a_cell_without_tables_is_no_hindrance(store: Store) -> None:
    whole = made.run(store, "density-1", scored.tables(100), scored.embedded(), {"learning_rate": 1.0}, audit="density")
    empty = made.run(store, "density-2", {"summary": []}, scored.embedded(), {"learning_rate": 2.0}, audit="density")
    assert figures(made.sweep(store, "density-sweep-1", [whole, empty])) == []


def shown(store: Store, config: Density | None = None, show_images: bool = False, **tables: Any) -> Gallery:
    found = gallery(run(store, "density-1", config, **tables), show_images)
    assert found is not None
    return found


def array(png: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(png)))


def test_the_least_the_median_and_the_most_memorised_are_shown_as_they_are(store: Store) -> None:
    found = shown(store, scores=scored.scores(200))
    assert (found.shown, found.note) == (True, "")
    assert len(found.pictures) == 45
    values = scored.values(200)
    order = np.argsort(values["m"], kind="stable")
    images = load(DIGITS).train_images
    for places, group in ((order[:15], "Least"), (order[92:107], "In the"), (order[-15:], "Most")):
        of = [picture for picture in found.pictures if picture.group.startswith(group)]
        assert [f"row {row}, M {drawing.format_number(float(values['m'][row]))}, " for row in places] == [
            each.title.partition("p ")[0] for each in of
        ]
        assert all(
            (array(each.png) == images[row, :, :, 0]).all() for row, each in zip(places.tolist(), of, strict=True)
        )


def test_of_test_images_asked_about_the_test_images_are_shown(store: Store) -> None:
    found = shown(store, scored.embedded(estimator=KFold(3, evaluation_split="test")), scores=scored.scores(100))
    row = int(np.argmin(scored.values(100)["m"]))
    assert (array(found.pictures[0].png) == load(DIGITS).test_images[row, :, :, 0]).all()


def test_a_few_observations_are_shown_once_each() -> None:
    places = score_extremes(Observations(scored.scores(7)))
    assert [len(each) for each in places.values()] == [2, 2, 2]
    assert len(np.unique(np.concatenate(list(places.values())))) == 6
    assert {"highest"} == set(score_extremes(Observations(scored.scores(2))))
    assert score_extremes(Observations(scored.scores(1).slice(0, 0))) == {}


def drawing_model(store: Store, samples: NDArray[np.float32]) -> list[pa.Table]:
    """Two models of the run density-1, of which the second drew these images, as its record says."""
    table = pa.table({"samples": pa.array([None, samples.tobytes()], pa.large_binary())})
    key = hashlib.sha256(b"density-1 fits 1").hexdigest()
    store.write(key, table, {"config": {"drawn": len(samples)}})
    return [pa.table({"samples": pa.nulls(2, pa.large_binary())}), table]


def test_examples_pairs_and_samples_have_their_groups(golden: Golden, store: Store) -> None:
    samples = np.linspace(0, 1, 20 * 28 * 28, dtype=np.float32).reshape(20, 28, 28, 1)
    tables: Any = {name: scored.tables(300)[name] for name in ("scores", "outliers", "duplicates")}
    of = run(store, **tables, fits=drawing_model(store, samples))
    found = gallery(of, False)
    assert found is not None
    groups: dict[str, list[Picture]] = {}
    for picture in found.pictures:
        groups.setdefault(picture.group, []).append(picture)
    drawn_ones = groups["Samples of the model"]
    assert len(drawn_ones) == 15
    assert (np.rint(samples[3, :, :, 0] * 255) == array(drawn_ones[3].png)).all()
    pairs = groups["Closest pairs of training images"]
    images = load(DIGITS).train_images
    golden(pairs[0].title)
    assert (np.concatenate([images[0], images[1]], axis=1)[..., 0] == array(pairs[0].png)).all()
    assert any(name.startswith("Highly memorised and regular, U ") for name in groups)
    text = pages.draw(of).read_text()
    assert len(groups) == text.count('<ul class="gallery">')
    assert text.count("<h3>Samples of the model</h3>") == 1
    assert len(found.pictures) == text.count("<img ")


def test_the_users_own_images_and_what_was_drawn_of_them_are_hidden_unless_asked_for(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "data"))
    config = scored.embedded(data=test_gallery.own(tmp_path / "data" / "mnist"))
    samples = np.zeros((20, 28, 28, 1), np.float32)
    tables = {"scores": scored.scores(40), "duplicates": scored.duplicates(5)}
    hidden = shown(store, config, **tables, fits=drawing_model(store, samples))
    assert (hidden.shown, hidden.pictures) == (False, ())
    assert "--show-images" in hidden.note
    most = int(np.argmax(scored.values(40)["m"]))
    assert f" {most}." in hidden.note
    open_to_see = shown(store, config, True, **tables, fits=[])
    assert open_to_see.shown
    assert len(open_to_see.pictures) == 13 * 3 + 5 + 15


def test_a_data_set_that_has_gone_or_changed_is_said_and_nothing_crashes(golden: Golden, store: Store) -> None:
    found = shown(store, scored.embedded(data=Dataset("digits", "0" * 64)), scores=scored.scores(40))
    assert (found.shown, found.pictures) == (False, ())
    golden(found.note)
    fewer = gallery(run(store, "density-2", scores=scored.scores(1600)), False)
    assert fewer is not None
    assert "out of bounds" in fewer.note


def test_there_is_no_gallery_without_scores_or_pairs(store: Store) -> None:
    assert gallery(run(store, losses=scored.losses(3)), True) is None


@pytest.mark.slow
def test_sixty_thousand_observations_make_a_small_page(store: Store) -> None:
    tables: Any = scored.tables(60_000)
    of = run(store, **tables)
    figures(run(store, "density-2", scores=scored.scores(30)))
    found = figures(of)
    assert sum(len(figure.svg) for figure in found) < 300_000
    assert pages.draw(of).stat().st_size < 2_000_000
