"""The figures of density's tables, and the tables' numbers in captions."""

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
    parts = {}
    for root, table in tables.items():
        parts[root] = table if isinstance(table, list) else [table]
    return made.run(store, name, {"summary": [], **parts}, config or scored.embedded(), audit="density")


def draw_figures(store: Store, **tables: Any) -> dict[str, Figure]:
    return named(run(store, **tables))


def test_complete_run_has_all_its_figures(store: Store) -> None:
    figures_by_name = draw_figures(store, **scored.tables(600))
    assert list(figures_by_name) == OWN
    assert [name for name, figure in figures_by_name.items() if "  " in figure.caption + figure.alt] == []


@pytest.mark.parametrize("name", TABLES)
def test_unusable_table_draws_nothing(store: Store, name: str) -> None:
    (usable,) = scored.tables(60)[name]
    assert figures(run(store, **{name: pa.table({"column": [1]})})) == []
    assert figures(run(store, "density-2", **{name: usable.slice(0, 0)})) == []
    nothing = pa.table({field.name: pa.nulls(usable.num_rows, field.type) for field in usable.schema}, usable.schema)
    assert figures(run(store, "density-3", **{name: nothing})) == []


def test_distribution_states_median_interval_and_null(store: Store) -> None:
    values = scored.values(2000)
    figure = draw_figures(store, scores=scored.scores(2000), distribution=scored.distribution(2000, (10,)))[
        "distribution"
    ]
    median = drawing.format_number(float(np.median(values["m"])))
    assert f"M as published: median {median} [" in figure.alt
    assert "null of the median 2.8" in figure.alt
    above = int((values["m_matched"] > 0).sum())
    assert f"{above:,} of 2,000" in figure.alt
    assert "median without memorisation" in words(figure)


def test_scores_are_drawn_without_statistics(store: Store) -> None:
    result = draw_figures(store, scores=scored.scores(50))
    assert set(result) == {"distribution", "significance", "labels"}
    assert "null" not in result["distribution"].alt
    assert "median without memorisation" not in words(result["distribution"])


def test_undefined_scores_are_left_out(golden: Golden, store: Store) -> None:
    table = scored.scores(50)
    m = pa.array([None, float("-inf"), *table["m"].to_pylist()[2:]], pa.float64())
    table = table.set_column(table.schema.get_field_index("m"), table.schema.field("m"), m)
    result = draw_figures(store, scores=table)
    golden(result["distribution"].caption, "caption")
    golden(result["significance"].caption, "caption")


def test_axis_is_cut_at_distant_values() -> None:
    near = np.linspace(0, 10, 5000)
    far = np.concatenate([np.linspace(0, 10, 5000), [900.0]])
    assert robust_limits([near])[1] == pytest.approx(10.3)
    cut = robust_limits([far])
    assert cut[1] < 11
    assert describe_outside(far, cut) == "1 above it, up to 900"
    assert describe_outside(near, robust_limits([near])) == ""
    assert robust_limits([near], [-5.0])[0] < -5


def test_values_beyond_the_axis_are_reported(store: Store) -> None:
    table = scored.scores(5000)
    m = np.array(table["m"].to_pylist())
    m[7] = 6500.0
    table = table.set_column(table.schema.get_field_index("m"), table.schema.field("m"), pa.array(m))
    figure = draw_figures(store, scores=table)["distribution"]
    assert "up to 6.5e+03" in figure.caption
    assert "to 6.5e+03" in figure.alt


def test_significant_rows_are_counted_after_correction(golden: Golden, store: Store) -> None:
    n = 400
    p = np.concatenate([np.full(20, 1e-4), np.linspace(0.1, 1, n - 20)])
    columns = {"row": range(n), "m": np.arange(n)[::-1].astype(float), "p_value": p}
    columns["p_adjusted"] = np.concatenate([np.full(20, 2e-3), np.ones(n - 20)])
    figure = draw_figures(store, scores=pa.table(columns))["significance"]
    golden(figure.alt, "found.alt")
    golden(figure.caption, "found.caption")


def test_false_discovery_procedure_depends_on_the_estimator(golden: Golden, store: Store) -> None:
    p = pa.array(np.full(12, 0.0125))
    table = pa.table({"p_value": p, "p_adjusted": p, "m": np.arange(12.0)})
    loo = named(run(store, "density-2", Density(Memorization(estimator=SingleRows(12))), scores=table))[
        "significance"
    ].caption
    folds = draw_figures(store, scores=table)["significance"].caption
    golden(folds, "folds")
    # 12 x 0.0125 / 0.05 = 3, times 1 + 1/2 + ... + 1/12 = 3.103
    golden(loo, "loo")


def test_highly_memorised_rows_are_those_of_the_tables() -> None:
    for m in ([*range(98), np.inf, np.inf], [*range(90), *[np.inf] * 10], [*range(20), np.nan, np.inf]):
        values = np.array(m, float)
        is_number = ~np.isnan(values)
        high = Observations(pa.table({"row": np.arange(len(values)), "m_matched": values})).high
        assert highly_memorised_mask(values[is_number]).tolist() == high[is_number].tolist()
        assert np.isinf(values[high]).any()
        assert not high[~is_number].any()


def test_labels_are_ordered_by_their_medians(golden: Golden, store: Store) -> None:
    label = np.repeat([3, 5], 10)
    matched = np.concatenate([np.arange(10.0), np.arange(10.0) + 100])
    table = pa.table({"row": range(20), "label": label, "m": matched + 1, "m_matched": matched})
    figure = draw_figures(store, scores=table)["labels"]
    golden(figure.alt)
    texts = words(figure)
    assert texts.index("label 3") >= 0
    golden(figure.caption, "found.caption")


def test_data_without_labels_have_no_label_figure(store: Store) -> None:
    assert "labels" not in draw_figures(store, scores=scored.scores(60, labelled=False))


def test_course_states_its_start_and_end(golden: Golden, store: Store) -> None:
    table = scored.distribution(500, (5, 10, 20))
    figure = draw_figures(store, distribution=table)["course"]
    high = float(np.quantile(scored.values(500)["m"], 0.95))
    followed = Statistics(table).curve("published", "quantile 0.95")
    assert followed is not None
    assert followed.places.tolist() == [5, 10, 20]
    assert high == pytest.approx(followed.value[-1])
    golden(figure.alt)
    assert "10 repetitions" in figure.caption
    assert "null 2.8" in figure.alt


def test_single_epoch_or_repetition_has_no_spread(golden: Golden, store: Store) -> None:
    assert draw_figures(store, distribution=scored.distribution(100, (10,))) == {}
    once = run(store, "density-2", distribution=scored.distribution(100, (1, 2), 1))
    golden(named(once)["course"].caption)


def test_losses_state_gap_and_lowest_test_loss(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, losses=scored.losses(100, gap=4.0))["losses"]
    golden(figure.alt, "found.alt")
    golden(figure.caption, "found.caption")


def test_first_losses_do_not_compress_the_rest() -> None:
    curves = read_losses(scored.losses(100))
    low, high = loss_limits(list(curves.values()))
    assert max(float(curve.value[0]) for curve in curves.values()) > 150 > high
    assert min(float(curve.value.min()) for curve in curves.values()) > low


def test_losses_without_model_of_all_data_are_drawn(store: Store) -> None:
    table = pa.Table.from_pylist(
        [row for row in scored.losses(10, 1).to_pylist() if row["models"] == "folds"], scored.LOSSES
    )
    figure = draw_figures(store, losses=table)["losses"]
    assert "Model of all data" not in figure.alt
    assert "intervals" not in figure.caption


def test_highly_memorised_rows_are_counted_by_likelihood(golden: Golden, store: Store) -> None:
    table = scored.outliers(3000)
    figure = draw_figures(store, outliers=table, scores=scored.scores(3000))["outliers"]
    rows = table.to_pylist()
    texts = words(figure)
    assert all(f"{row['memorised']:,}" in texts for row in rows if row["memorised"])
    golden(figure.caption)
    values = scored.values(3000)
    u = values["log_p_trained"]
    high = values["m"] > np.quantile(values["m"], 0.95)
    low, top = np.quantile(u, (0.05, 0.95))
    inside = int(((u >= low) & (u <= top) & high).sum())
    assert f"{inside} of 150" in figure.caption
    assert re.search(r"Among U .*: highly memorised rows \d+, .*; regular rows \d+, ", figure.alt)


def test_bins_are_drawn_in_ascending_order(store: Store) -> None:
    table = scored.outliers(3000)
    bin_names = [name for name, _ in example_bins(table, 3)]
    backwards = table.take(list(range(table.num_rows))[::-1])
    assert bin_names == [name for name, _ in example_bins(backwards, 3)]
    one = draw_figures(store, outliers=table)["outliers"]
    assert one.alt == named(run(store, "density-2", outliers=backwards))["outliers"].alt


def test_labels_of_many_bins_do_not_overlap(store: Store) -> None:
    figure = draw_figures(store, outliers=scored.outliers(3000, width=1.0, bins=120))["outliers"]
    assert len([text for text in words(figure) if " to " in text or text[0] in "<≥"]) <= 12
    assert float(re.findall(r'viewBox="0 0 \d+\S* (\d+)', figure.svg)[0]) < 600


def test_neighbours_name_bins_that_differ_from_one(golden: Golden, store: Store) -> None:
    bins = []
    for low, mean, error, n in ((0.0, 0.9, 0.01, 900), (2.0, 1.0, 0.01, 90), (4.0, 1.2, 0.01, 9), (6.0, 3, None, 1)):
        bins.append({"group": "bin", "low": low, "high": low + 2, "mean": mean, "standard_error": error, "n": n})
    figure = draw_figures(store, ratios=pa.Table.from_pylist(bins, scored.RATIOS))["neighbours"]
    golden(figure.alt)
    assert "Highly memorised" not in figure.caption


def test_distant_bin_is_reported_but_not_drawn(store: Store) -> None:
    near = scored.ratios(5000).to_pylist()
    far = {"group": "bin", "low": 6500.0, "high": 6502.0, "mean": 1.4, "n": 1}
    figure = draw_figures(store, ratios=pa.Table.from_pylist([*near, far], scored.RATIOS))["neighbours"]
    assert "to 6.5e+03 nats" in figure.caption
    assert not any(text.startswith("6") and len(text) >= 4 for text in words(figure))


def test_quantiles_of_both_kinds_are_described(golden: Golden, store: Store) -> None:
    rows = []
    for group, n, shift in (("memorised", 5, 1.0), ("regular", 95, 0.5)):
        rows.append({"group": group, "n": n, "mean": 1.0, "quantiles": (np.linspace(0, 1, 101) + shift).tolist()})
    figure = draw_figures(store, ratios=pa.Table.from_pylist(rows, scored.RATIOS))["neighbours"]
    golden(figure.alt)


def test_duplicates_count_copies_and_different_labels(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, duplicates=scored.duplicates(30))["duplicates"]
    golden(figure.alt, "found.alt")
    bare = named(run(store, "density-2", duplicates=scored.duplicates(30, labelled=False)))["duplicates"]
    assert "different labels" not in bare.alt
    assert "pairs, 30" in words(bare)


def test_first_of_many_pairs_are_drawn(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, duplicates=scored.duplicates(2000))["duplicates"]
    golden(figure.caption)
    assert len(figure.svg) < 60_000


def test_kernel_point_states_log_ratio_as_score(golden: Golden, store: Store) -> None:
    table = scored.kernel()
    x = np.array(table["x"].to_pylist())
    with_it = np.array(table["with_point"].to_pylist())
    without = np.array(table["without_point"].to_pylist())
    point = int(np.abs(x - 4).argmin())
    figure = draw_figures(store, kernel=table)["kernel"]
    golden(figure.alt)
    assert f"M {np.log(with_it[point] / without[point]):.3g} nats" in figure.alt


def cells(store: Store, count: int) -> Run:
    return made.sweep(
        store,
        "density-sweep-1",
        [
            made.run(
                store,
                f"density-{index}",
                scored.tables(300, spread=1.0 + index, seed=index),
                scored.embedded(training=ModelTraining(learning_rate=10.0**-index)),
                {"learning_rate": 10.0**-index},
                audit="density",
            )
            for index in range(count)
        ],
    )


def test_sweep_overlays_its_cells(golden: Golden, store: Store) -> None:
    result = named(cells(store, 2))
    assert list(result) == ["densities", "courses", "losses"]
    golden(result["densities"].title)
    for figure in result.values():
        assert set(words(figure)) >= {"learning_rate 1", "learning_rate 0.1"}
    golden(result["densities"].alt, "alt")
    assert "gap 4" in result["losses"].alt
    golden(result["courses"].alt, "alt")


def test_sweep_of_many_cells_has_rows(store: Store) -> None:
    result = named(cells(store, 7))
    assert list(result) == ["densities"]
    assert "A row is a cell" in result["densities"].caption
    assert "learning_rate 1e-06" in words(result["densities"])


def test_cell_without_tables_does_not_matter(store: Store) -> None:
    full_run = made.run(
        store, "density-1", scored.tables(100), scored.embedded(), {"learning_rate": 1.0}, audit="density"
    )
    empty = made.run(store, "density-2", {"summary": []}, scored.embedded(), {"learning_rate": 2.0}, audit="density")
    assert figures(made.sweep(store, "density-sweep-1", [full_run, empty])) == []


def open_gallery(store: Store, config: Density | None = None, show_images: bool = False, **tables: Any) -> Gallery:
    result = gallery(run(store, "density-1", config, **tables), show_images)
    assert result is not None
    return result


def array(png: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(png)))


def test_least_median_and_most_memorised_are_shown(store: Store) -> None:
    result = open_gallery(store, scores=scored.scores(200))
    assert (result.shown, result.note) == (True, "")
    assert len(result.pictures) == 45
    values = scored.values(200)
    order = np.argsort(values["m"], kind="stable")
    images = load(DIGITS).train_images
    for places, group in ((order[:15], "Least"), (order[92:107], "In the"), (order[:-16:-1], "Most")):
        group_pictures = []
        for picture in result.pictures:
            if picture.group.startswith(group):
                group_pictures.append(picture)
        assert [f"row {row}, M {drawing.format_number(float(values['m'][row]))}, " for row in places] == [
            shown_picture.title.partition("p ")[0] for shown_picture in group_pictures
        ]
        assert all(
            (array(shown_picture.png) == images[row, :, :, 0]).all()
            for row, shown_picture in zip(places.tolist(), group_pictures, strict=True)
        )


def test_images_are_shown_if_evaluated(store: Store) -> None:
    result = open_gallery(
        store, scored.embedded(estimator=KFold(3, evaluation_split="test")), scores=scored.scores(100)
    )
    row = int(np.argmax(scored.values(100)["m"]))
    assert (array(result.pictures[0].png) == load(DIGITS).test_images[row, :, :, 0]).all()


def test_few_observations_are_shown_once() -> None:
    places = score_extremes(Observations(scored.scores(7)))
    assert [len(rows) for rows in places.values()] == [2, 2, 2]
    assert len(np.unique(np.concatenate(list(places.values())))) == 6
    assert set(score_extremes(Observations(scored.scores(2)))) == {"highest"}
    assert score_extremes(Observations(scored.scores(1).slice(0, 0))) == {}


def drawing_model(store: Store, samples: NDArray[np.float32]) -> list[pa.Table]:
    """Two models of the run density-1; the record of the second has these samples."""
    table = pa.table({"samples": pa.array([None, samples.tobytes()], pa.large_binary())})
    key = hashlib.sha256(b"density-1 fits 1").hexdigest()
    store.write(key, table, {"config": {"drawn": len(samples)}})
    return [pa.table({"samples": pa.nulls(2, pa.large_binary())}), table]


def test_examples_pairs_and_samples_have_their_groups(golden: Golden, store: Store) -> None:
    samples = np.linspace(0, 1, 20 * 28 * 28, dtype=np.float32).reshape(20, 28, 28, 1)
    tables: Any = {name: scored.tables(300)[name] for name in ("scores", "outliers", "duplicates")}
    full_run = run(store, **tables, fits=drawing_model(store, samples))
    result = gallery(full_run, False)
    assert result is not None
    groups: dict[str, list[Picture]] = {}
    for picture in result.pictures:
        groups.setdefault(picture.group, []).append(picture)
    sample_pictures = groups["Samples of the model"]
    assert len(sample_pictures) == 15
    assert (np.rint(samples[3, :, :, 0] * 255) == array(sample_pictures[3].png)).all()
    pairs = groups["Closest pairs of training images"]
    images = load(DIGITS).train_images
    golden(pairs[0].title)
    assert (np.concatenate([images[0], images[1]], axis=1)[..., 0] == array(pairs[0].png)).all()
    assert any(name.startswith("Highly memorised and regular, U ") for name in groups)
    page_path = pages.draw(full_run)
    text = page_path.read_text()
    assert len(groups) == text.count('<ul class="gallery">')
    assert text.count("<h3>Samples of the model</h3>") == 1
    assert len(result.pictures) == pages.image_count(page_path)


def test_users_images_and_samples_are_hidden_unless_requested(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "data"))
    config = scored.embedded(data=test_gallery.users_images(tmp_path / "data" / "mnist"))
    samples = np.zeros((20, 28, 28, 1), np.float32)
    tables = {"scores": scored.scores(40), "duplicates": scored.duplicates(5)}
    hidden = open_gallery(store, config, **tables, fits=drawing_model(store, samples))
    assert (hidden.shown, hidden.pictures) == (False, ())
    assert "--show-images" in hidden.note
    most_memorised = int(np.argmax(scored.values(40)["m"]))
    assert f"Most memorised: {most_memorised}, " in hidden.note
    requested = open_gallery(store, config, True, **tables, fits=[])
    assert requested.shown
    assert len(requested.pictures) == 13 * 3 + 5 + 15


def test_missing_or_changed_data_set_is_reported(golden: Golden, store: Store) -> None:
    result = open_gallery(store, scored.embedded(data=Dataset("digits", "0" * 64)), scores=scored.scores(40))
    assert (result.shown, result.pictures) == (False, ())
    golden(result.note)
    fewer = gallery(run(store, "density-2", scores=scored.scores(1600)), False)
    assert fewer is not None
    assert "out of bounds" in fewer.note


def test_no_gallery_without_scores_or_pairs(store: Store) -> None:
    assert gallery(run(store, losses=scored.losses(3)), True) is None


@pytest.mark.slow
def test_sixty_thousand_observations_make_a_small_page(store: Store) -> None:
    tables: Any = scored.tables(60_000)
    full_run = run(store, **tables)
    figures(run(store, "density-2", scores=scored.scores(30)))
    result = figures(full_run)
    assert sum(len(figure.svg) for figure in result) < 300_000
    assert pages.draw(full_run).stat().st_size < 2_000_000
