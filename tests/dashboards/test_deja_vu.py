"""The figures of deja_vu's tables, their numbers in captions, and the display of images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.attacks import Attack, decisive_percent, read_curve
from dashboards.audits.deja_vu.pictures import BOX, CROP, LONGEST, dashes, draw_outlines
from dashboards.audits.deja_vu.scores import gap, gaps
from dashboards.chart import Curve, Figure, curve
from dashboards.figures import figures
from dashboards.gallery import Gallery, Item
from dashboards.page import gallery
from dashboards.run import Run
from orchestrator.inspection.pages import PRIVATE_PAGE
from orchestrator.spec.specification import Spec
from orchestrator.store import Store
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.measures import summary
from tasks.audits.deja_vu.measures.retrieval import RETRIEVAL
from tasks.datasets import catalog
from tasks.datasets.boxed.crops import evaluation_pictures, windows
from tasks.datasets.dataset import Dataset
from tests.dashboards import inferred, made, pages
from tests.dashboards.labels import words
from tests.dashboards.test_figures import named
from tests.dashboards.test_gallery import array
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.datasets.boxed.trees import jpeg, saved

OWN = ["accuracy", "scores", "categories"]


def run(store: Store, name: str = "deja_vu-1", config: DejaVu | None = None, **tables: pa.Table) -> Run:
    parts = {"summary": [], **{root: [table] for root, table in tables.items()}}
    return made.run(store, name, parts, config or inferred.embedded(), audit="deja_vu")


def draw_figures(store: Store, **tables: pa.Table) -> dict[str, Figure]:
    return named(run(store, **tables))


def test_complete_run_has_all_its_figures(store: Store) -> None:
    result = draw_figures(store, **inferred.tables(probe=inferred.probes()))
    assert list(result) == [*OWN, "estimates"]
    assert [name for name, figure in result.items() if "  " in figure.caption + figure.alt] == []


def test_unusable_tables_draw_nothing(store: Store) -> None:
    usable = {"scores": inferred.scores((1,)), "categories": inferred.categories((1,)), "probe": inferred.probes((1,))}
    assert figures(run(store)) == []
    assert figures(run(store, "deja_vu-2", **{name: pa.table({"column": [1]}) for name in usable})) == []
    assert figures(run(store, "deja_vu-3", **{name: table.slice(0, 0) for name, table in usable.items()})) == []


def test_missing_values_draw_nothing(store: Store) -> None:
    for name, table in (("scores", inferred.scores((1, 2))), ("categories", inferred.categories((1, 2)))):
        names = []
        for column in table.column_names:
            if table.schema.field(column).type == pa.float64():
                names.append(column)
        columns = {column: pa.nulls(table.num_rows, pa.float64()) for column in names}
        empty = pa.table({column: columns.get(column, table[column]) for column in table.column_names}, table.schema)
        assert figures(run(store, f"deja_vu-{name}", **{name: empty})) == []


def test_last_epoch_first_layer_and_first_k_decide() -> None:
    attack_list = attacks.read_attacks(inferred.scores((10, 20), (3, 1, 0), (20, 50)))
    assert len(attack_list) == 12
    assert Attack(20, 3, 20) == attacks.decisive_attack(attack_list)
    assert [Attack(10, 3, 20), Attack(20, 3, 20)] == attacks.attacks_along(attack_list, "epoch")
    assert [Attack(20, 0, 20), Attack(20, 1, 20), Attack(20, 3, 20)] == attacks.attacks_along(attack_list, "layer")
    neighbours = [(10, 3, 20), (20, 0, 20), (20, 1, 20), (20, 3, 50)]
    assert neighbours == list(attacks.neighbouring_attacks(attack_list))


def test_accuracies_are_described_at_decisive_percent_and_ends(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, scores=inferred.scores())["accuracy"]
    # At p % the reference has 0.3 - p / 1000, and the target 0.4 + (p - 20) / 200 more.
    golden(figure.alt, "figure.alt")
    assert "the decisive 20 %" in figure.caption
    golden(figure.caption, "figure.caption")
    assert set(words(figure)) >= {"model trained on the image", "model not trained on it", "epoch 10", "epoch 20"}


def test_curves_equal_the_table() -> None:
    table = attacks.attack_rows(attacks.both_ways_rows(inferred.scores()), Attack(20, 3, 20))
    accuracy_curve = read_curve(table, "percent", "target_accuracy")
    assert accuracy_curve is not None
    assert list(range(1, 101)) == accuracy_curve.places.tolist()
    expected = []
    for percent in range(1, 101):
        expected.append(inferred.accuracies(20, 3, 20, percent)[0])
    assert expected == accuracy_curve.value.tolist()
    assert accuracy_curve.value - 0.05 == pytest.approx(accuracy_curve.low)
    axes = Canvas().add_subplot()
    curve(accuracy_curve, ("canary", "o", "-"))(axes)
    (line,) = axes.lines
    assert expected == np.asarray(line.get_ydata()).tolist()
    assert drawing.light("canary") == line.get_color()


def test_tested_percentage_decides(golden: Golden, store: Store) -> None:
    table = inferred.scores(percent=5)
    assert decisive_percent(attacks.both_ways_rows(table)) == 5
    result = draw_figures(store, scores=table)
    assert "the decisive 5 %" in result["accuracy"].caption
    # 7.5 points less at 5 % than at 20 %.
    golden(result["scores"].alt)


def test_many_attacks_are_described_and_some_drawn(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, scores=inferred.scores(range(1, 12), (3, 2), (20, 30)))["accuracy"]
    golden(figure.caption)
    assert set(words(figure)) >= {"epoch 1", "layer 2", "k 30"}
    assert len([text for text in words(figure) if re.fullmatch(r"(?:epoch|layer|k) \d+", text)]) == 9
    assert len(re.findall(r"\. (?:epoch \d+|layer \d|k \d+): trained on the image", figure.alt)) == 12
    assert len(figure.svg) < 500_000


def test_single_attack_has_no_course(store: Store) -> None:
    result = draw_figures(store, scores=inferred.scores((40,)))
    assert list(result) == ["accuracy"]
    assert "Below:" not in result["accuracy"].caption


def test_score_has_a_panel_for_each_varied_field(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, scores=inferred.scores((10, 40), (3, 1), (20, 50)))["scores"]
    golden(figure.alt)
    assert set(words(figure)) >= {"epoch", "layer, 0: the backbone's output", "neighbours that vote", "deja vu score"}
    assert "probe" not in figure.alt + figure.caption


def test_gap_of_linear_probes_is_included(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, scores=inferred.scores((10, 40)), probe=inferred.probes((10, 40)))["scores"]
    interval = gap((160, 200), (50, 100))
    assert interval.low is not None
    assert interval.high is not None
    golden(figure.alt)
    assert "linear probe, train - test" in words(figure)


def test_gap_covers_all_models_with_newcombes_interval() -> None:
    probe_gaps = gaps(inferred.probes((10,), (3, 0)))
    assert list(probe_gaps) == [(10, 0), (10, 3)]
    assert pytest.approx(probe_gaps[10, 3].value) == 0.3
    assert probe_gaps[10, 3].n == 300  # both models' training images, and the same other ones
    # Newcombe 1998, table II, column (a), method 10: 56 of 70 less 48 of 80.
    example = gap((56, 70), (48, 80))
    assert pytest.approx((example.value, example.low, example.high), abs=5e-5) == (0.2, 0.0524, 0.3339)
    assert gaps(inferred.probes((10,)).slice(0, 1)) == {}
    assert gaps(pa.table({})) == {}


def test_start_of_fine_tuning_is_marked(golden: Golden, store: Store) -> None:
    config = inferred.embedded()
    tuned = with_settings(config, epochs=20, checkpoints=(10, 20), fine_tuning=20)
    figure = named(run(store, config=tuned, scores=inferred.scores((10, 20, 30, 40))))["scores"]
    golden(figure.caption)
    plain = named(run(store, "deja_vu-2", with_settings(config, epochs=40, checkpoints=()), scores=inferred.scores()))
    assert "fine-tuned" not in plain["scores"].caption


def test_memorised_is_compared_with_misrepresented(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, categories=inferred.categories())["categories"]
    golden(figure.alt, "found.alt")
    golden(figure.caption, "found.caption")
    assert set(words(figure)) >= {"memorised", "misrepresented", "correlated", "unassociated", "10", "20", "40"}
    once = named(run(store, "deja_vu-2", categories=inferred.categories((5,))))["categories"]
    golden(once.alt, "once.alt")
    layers = named(run(store, "deja_vu-3", categories=inferred.categories((5,), (3, 1, 0))))["categories"]
    assert re.findall(r"Layer \d", layers.alt) == ["Layer 0", "Layer 1", "Layer 3"]
    assert "layer, 0: the backbone's output" in words(layers)
    ks = named(run(store, "deja_vu-4", categories=inferred.categories((5,), (3,), (20, 50))))["categories"]
    golden(ks.alt, "ks.alt")


def open_gallery(store: Store, config: DejaVu | None = None, show_images: bool = False, **fields: Any) -> Gallery:
    result = gallery(run(store, config=config, retrieval=inferred.retrieved(**fields)), show_images)
    assert result is not None
    return result


def picture_of(item: Item, strip: int, position: int) -> NDArray[np.uint8]:
    return array(item.strips[strip].pictures[position].png)


def test_image_has_its_crop_and_neighbours(golden: Golden, store: Store) -> None:
    config = inferred.embedded()
    images = catalog.load_with_boxes(config.data)
    side = config.training.augmentation.resolution
    result = open_gallery(store, config)
    assert (result.shown, result.note, result.pictures) == (True, "", ())
    assert [item.group.split()[1].rstrip(",:") for item in result.items[::3]] == [
        "memorised",
        "correlated",
        "confident",
    ]
    for index, item in enumerate(result.items[:3]):
        name = images.names[images.labels[index]]
        golden(item.title, "item.title")
        right, wrong_label = (strip.label for strip in item.strips)
        golden(right, "right")
        golden(wrong_label, "wrong")
        assert [picture.title for picture in item.pictures] == ["image", "crop"]
        rectangle, _ = windows(images, np.array([index]), "periphery", 8)
        assert (evaluation_pictures(images, np.array([index]), side, rectangle)[0] == array(item.pictures[1].png)).all()
        for strip, step in enumerate((100, 200)):
            rows = np.array([step * (index + 1) + j for j in range(1, 5)])
            for position, (row, image) in enumerate(zip(rows, evaluation_pictures(images, rows, side), strict=True)):
                assert (image == picture_of(item, strip, position)).all()
                near = images.names[images.labels[row]]
                caption = item.strips[strip].pictures[position]
                assert (f"✓ {near}" if near == name else near) == caption.title
                golden(caption.alt, "caption.alt")


def test_image_is_shown_once_with_neighbours_by_layer(store: Store) -> None:
    result = open_gallery(store, layers=(2, 0))
    assert len(result.items) == 9
    assert [f"{model} it, layer {layer}" for layer in (2, 0) for model in ("Trained on", "Not trained on")] == [
        strip.label.split(":")[0] for strip in result.items[0].strips
    ]


def test_null_names_training_on_other_images(store: Store) -> None:
    null = "This is a control run: both models were trained on other images"
    config = with_settings(inferred.embedded(), training_sets="other")
    tables = {"scores": inferred.scores(), "retrieval": inferred.retrieved()}
    made_up = run(store, config=config, **tables)
    result = gallery(made_up, False)
    assert result is not None
    assert null in result.caption
    assert null in named(made_up)["accuracy"].caption
    assert null not in named(run(store, "deja_vu-2", **tables))["accuracy"].caption


def test_at_most_ten_images_and_neighbours_are_shown(store: Store) -> None:
    result = open_gallery(store, kinds=("confident",), per_kind=14, near=15)
    assert len(result.items) == 10
    assert {len(strip.pictures) for item in result.items for strip in item.strips} == {10}
    assert [f"{rank}." for rank in range(1, 11)] == [item.title.split()[0] for item in result.items]


def test_run_without_retrieval_has_no_gallery(store: Store) -> None:
    assert gallery(run(store), True) is None
    assert gallery(run(store, "deja_vu-2", retrieval=RETRIEVAL.empty_table()), True) is None


def users_images(folder: Path) -> Dataset:
    """Nine of the user's images in a table with boxes, pinned; they are larger than on the page."""
    rows = ["path,label,left,top,right,bottom"]
    for number in range(9):
        pixels = np.zeros((300, 400, 3), np.uint8)
        pixels[..., 0], pixels[100:200, 150:250, 1] = 20 * number, 255
        saved(folder / f"{number}.png", jpeg(pixels, kind="PNG"))
        rows.append(f"{number}.png,{'<secret>' if number % 2 else 'plain'},150,100,250,200")
    saved(folder / "boxes.csv", "\n".join(rows) + "\n")
    return catalog.pin(Dataset(f"boxed:{folder / 'boxes.csv'}"))


def test_users_images_are_hidden_unless_requested(
    golden: Golden, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    data = users_images(tmp_path / "own")
    config = with_settings(inferred.embedded(), data=data, resolution=224)
    of_table = run(store, config=config, retrieval=inferred.retrieved(data, near=3))
    hidden = gallery(of_table, False)
    assert hidden is not None
    assert (hidden.shown, hidden.items) == (False, ())
    golden(hidden.note)
    private = gallery(of_table, True)
    assert private is not None
    assert len(private.items) == 9
    image, crop = (array(picture.png) for picture in private.items[1].pictures)
    assert image.shape == (72, 96, 3)
    assert crop.shape == (96, 96, 3)
    assert tuple(crop[48, 48]) == (20, 0, 0)  # of image 1, whose object is green
    assert {array(neighbour.png).shape for neighbour in private.items[0].strips[0].pictures} == {(96, 96, 3)}
    page = pages.draw(of_table, show_images=True)
    assert page.read_text().count("data:image/png") == 0
    shown_page = (page.parent / PRIVATE_PAGE).read_text()
    assert pages.image_count(page.parent / PRIVATE_PAGE) == 9 * (2 + 2 * 3)
    assert "class &lt;secret&gt;" in shown_page


def test_changed_data_and_missing_images_are_reported(golden: Golden, store: Store) -> None:
    result = open_gallery(store, with_settings(inferred.embedded(), data=Dataset("digits-on-photos", "0" * 64)))
    assert (result.shown, result.items) == (False, ())
    golden(result.note, "found.note")
    rows = []
    for row in inferred.retrieved(per_kind=1).to_pylist():
        rows.append(row | {"id": "china-999-999"})
    gone = gallery(run(store, "deja_vu-2", retrieval=pa.Table.from_pylist(rows, RETRIEVAL)), False)
    assert gone is not None
    golden(gone.note)


def test_object_is_dashed_and_crop_solid() -> None:
    outlined = draw_outlines(np.full((32, 32, 3), 128, np.uint8), [[4, 8, 20, 24]], [22, 0, 32, 32])
    assert outlined.shape == (96, 96, 3)
    crop = np.all(outlined == tuple(bytes.fromhex(CROP[1:])), axis=2)
    box = np.all(outlined == tuple(bytes.fromhex(BOX[1:])), axis=2)
    assert crop[:, 66].all()  # its left edge, three times 22
    assert crop[0, 66:].all()
    assert not crop[:, :66].any()
    rows, columns = np.nonzero(box)
    assert rows.min() == 24
    assert rows.max() == 71
    assert columns.min() == 12
    assert columns.max() == 59
    assert 0.3 < box[24, 12:60].mean() < 0.7
    assert (outlined[40, 30] == 128).all()


def test_large_image_is_scaled_and_box_cut() -> None:
    outlined = draw_outlines(np.zeros((300, 600, 3), np.uint8), [[-50, 100, 700, 200]], [0, 0, 600, 100])
    assert outlined.shape == (LONGEST // 2, LONGEST, 3)
    assert (outlined[16, 0] == BOX_RGB).all()
    assert list(dashes((0, 5, 7, 5))) == [(0, 5, 2, 5), (6, 5, 7, 5)]


BOX_RGB = np.frombuffer(bytes.fromhex(BOX[1:]), np.uint8)


def test_page_has_every_image_once_with_description(store: Store) -> None:
    page = pages.draw(run(store, **inferred.tables(retrieval=inferred.retrieved())))
    text = page.read_text()
    assert pages.image_count(page) == 3 * 3 * (2 + 2 * 4)
    assert all(alt for alt in re.findall(r'<img [^>]*alt="([^"]*)"', text))
    assert text.count('<div class="asked">') == 9
    assert text.count("<ul") == text.count("</ul>")
    assert "Most memorised: named correctly only by the model trained on the image" in pages.words(page)
    assert '<h2 id="neighbours">Neighbours</h2>' in text


def test_page_size_is_bounded(store: Store) -> None:
    retrieved = inferred.retrieved(per_kind=12, near=12)
    assert pages.draw(run(store, **inferred.tables(retrieval=retrieved))).stat().st_size < 4_000_000


def sweep(store: Store, fields: list[dict[str, Any]], **tables: pa.Table) -> Run:
    cells = []
    for index, changed in enumerate(fields):
        epochs = (10, 20, 40 + index)  # so that the cells' decisive rows of the summary differ
        tables_of_cell = {"scores": inferred.scores(epochs), "categories": inferred.categories(epochs)}
        tables_of_cell |= {"probe": inferred.probes(epochs), **tables}
        tables_of_cell["summary"] = summary(
            About(20, 3, 20, 40 + index), [tables_of_cell["scores"], tables_of_cell["categories"]]
        )
        config = with_settings(inferred.embedded(), epochs=40 + index, checkpoints=(), **changed)
        parts = {name: [table] for name, table in tables_of_cell.items()}
        cells.append(
            made.run(store, f"deja_vu-{index}", parts, config, {**changed, "epochs": 40 + index}, audit="deja_vu")
        )
    return made.sweep(store, "deja_vu-sweep-1", cells)


def test_sweep_compares_cells_with_different_last_epochs(golden: Golden, store: Store) -> None:
    result = named(sweep(store, [{"per_class": size} for size in (20, 40, 80)]))
    assert list(result) == ["sweep", "accuracies", "courses", "shares", "gaps"]
    golden([result["sweep"].title, result["sweep"].alt, result["gaps"].alt])
    for index, size in enumerate((20, 40, 80)):
        score = 0.4 + index / 100
        ends = f"[{score - 0.05:.3g}, {score + 0.05:.3g}]"
        assert f"per_class {size}: {score:.3g} {ends} after epoch {40 + index}." in result["courses"].alt
        assert f"per_class {size}: memorised {score:.3g} [" in result["shares"].alt
    assert set(words(result["accuracies"])) >= {"per_class 20", "per_class 40", "per_class 80"}


def test_sweep_of_names_has_row_and_panel_each(golden: Golden, store: Store) -> None:
    result = named(sweep(store, [{"criterion": name} for name in ("vicreg", "barlow", "supervised")]))
    assert set(words(result["shares"])) >= {"criterion vicreg", "criterion barlow"}
    # too narrow for the field's name
    assert set(words(result["accuracies"])) >= {"vicreg", "barlow", "supervised"}
    golden(result["accuracies"].alt)


def test_cells_without_tables_are_left_out(store: Store) -> None:
    empty = {"scores": pa.table({}), "categories": pa.table({}), "probe": pa.table({})}
    cells = []
    for index in range(2):
        cells.append(
            made.run(
                store,
                f"deja_vu-{index}",
                {"summary": [], **({} if index else empty)},
                setting={"seed": index},
                audit="deja_vu",
            )
        )
    assert figures(made.sweep(store, "deja_vu-sweep-1", cells)) == []


def test_point_without_interval_is_described_without_one() -> None:
    alone = Curve(np.ones(1), np.full(1, 0.25), np.full(1, np.nan), np.full(1, np.nan))
    assert alone.describe() == "0.25"
    axes = Canvas().add_subplot()
    curve(alone, ("twin", "s", "-"))(axes)
    assert np.asarray(axes.lines[-1].get_ydata()).tolist() == [0.25]


@pytest.mark.slow
def test_real_run_is_drawn_with_its_numbers(store: Store) -> None:
    real_run = pages.ran(store, Spec("deja_vu", "quickstart", set={"scale": "tiny"}))
    of_run = named(real_run)
    assert list(of_run) == [*OWN, "estimates"]
    assert real_run.verdict is not None
    (row,) = (row for row in real_run.summary if (row["metric"], row["setting"]) == real_run.verdict.rows[0])
    assert (
        f"{drawing.format_number(row['estimate'])}{drawing.format_interval(row['low'], row['high'])} at 2"
        in of_run["scores"].alt
    )
    shares = {row["metric"]: drawing.format_number(row["estimate"]) for row in real_run.summary}
    assert f"Epoch 2: memorised {shares['share memorised']} [" in of_run["categories"].alt
    shown_gallery = gallery(real_run, False)
    assert shown_gallery is not None
    assert shown_gallery.shown
    retrieved = real_run.table("retrieval").to_pylist()
    assert [row["id"] for row in retrieved if row["scope"] == "all" and row["rank"] <= 10] == [
        item.title.split()[1].rstrip(",") for item in shown_gallery.items
    ]
    assert pages.image_count(pages.draw(real_run)) == sum(
        2 + sum(len(picture.pictures) for picture in item.strips) for item in shown_gallery.items
    )
