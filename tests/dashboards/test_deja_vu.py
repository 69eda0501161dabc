"""What is drawn of deja_vu's tables, that the words beside it have their numbers, and whose images are shown."""

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


def drawn(store: Store, **tables: pa.Table) -> dict[str, Figure]:
    return named(run(store, **tables))


def test_a_whole_run_has_all_its_figures(store: Store) -> None:
    found = drawn(store, **inferred.tables(probe=inferred.probes()))
    assert [*OWN, "estimates"] == list(found)
    assert [name for name, figure in found.items() if "  " in figure.caption + figure.alt] == []


def test_tables_without_rows_or_with_other_columns_draw_nothing(store: Store) -> None:
    whole = {"scores": inferred.scores((1,)), "categories": inferred.categories((1,)), "probe": inferred.probes((1,))}
    assert figures(run(store)) == []
    assert figures(run(store, "deja_vu-2", **{name: pa.table({"column": [1]}) for name in whole})) == []
    assert figures(run(store, "deja_vu-3", **{name: each.slice(0, 0) for name, each in whole.items()})) == []


def test_values_that_are_missing_draw_nothing(store: Store) -> None:
    for name, table in (("scores", inferred.scores((1, 2))), ("categories", inferred.categories((1, 2)))):
        names = [each for each in table.column_names if table.schema.field(each).type == pa.float64()]
        columns = {each: pa.nulls(table.num_rows, pa.float64()) for each in names}
        empty = pa.table({each: columns.get(each, table[each]) for each in table.column_names}, table.schema)
        assert figures(run(store, f"deja_vu-{name}", **{name: empty})) == []


def test_the_last_epoch_the_first_layer_and_the_first_k_decide() -> None:
    found = attacks.read_attacks(inferred.scores((10, 20), (3, 1, 0), (20, 50)))
    assert len(found) == 12
    assert Attack(20, 3, 20) == attacks.decisive_attack(found)
    assert [Attack(10, 3, 20), Attack(20, 3, 20)] == attacks.attacks_along(found, "epoch")
    assert [Attack(20, 0, 20), Attack(20, 1, 20), Attack(20, 3, 20)] == attacks.attacks_along(found, "layer")
    beside = [(10, 3, 20), (20, 0, 20), (20, 1, 20), (20, 3, 50)]
    assert beside == list(attacks.neighbouring_attacks(found))


def test_accuracies_are_told_where_the_score_decides_and_at_both_ends(golden: Golden, store: Store) -> None:
    figure = drawn(store, scores=inferred.scores())["accuracy"]
    # At p % the reference has 0.3 - p / 1000, and the target 0.4 + (p - 20) / 200 more.
    golden(figure.alt, "figure.alt")
    assert "the decisive 20 %" in figure.caption
    golden(figure.caption, "figure.caption")
    assert {"model trained on the image", "model not trained on it", "epoch 10", "epoch 20"} <= set(words(figure))


def test_the_curves_are_those_of_the_table() -> None:
    table = attacks.attack_rows(attacks.both_ways_rows(inferred.scores()), Attack(20, 3, 20))
    found = read_curve(table, "percent", "target_accuracy")
    assert found is not None
    assert list(range(1, 101)) == found.places.tolist()
    expected = [inferred.accuracies(20, 3, 20, percent)[0] for percent in range(1, 101)]
    assert expected == found.value.tolist()
    assert found.value - 0.05 == pytest.approx(found.low)
    axes = Canvas().add_subplot()
    curve(found, ("canary", "o", "-"))(axes)
    (line,) = axes.lines
    assert expected == np.asarray(line.get_ydata()).tolist()
    assert drawing.light("canary") == line.get_color()


def test_another_percentage_decides_where_it_was_tested(golden: Golden, store: Store) -> None:
    table = inferred.scores(percent=5)
    assert decisive_percent(attacks.both_ways_rows(table)) == 5
    found = drawn(store, scores=table)
    assert "the decisive 5 %" in found["accuracy"].caption
    # 7.5 less at 5 % than at 20 %.
    golden(found["scores"].alt)


def test_of_very_many_attacks_a_few_are_drawn_and_all_told(golden: Golden, store: Store) -> None:
    figure = drawn(store, scores=inferred.scores(range(1, 12), (3, 2), (20, 30)))["accuracy"]
    golden(figure.caption)
    assert {"epoch 1", "layer 2", "k 30"} <= set(words(figure))
    assert len([text for text in words(figure) if re.fullmatch(r"(?:epoch|layer|k) \d+", text)]) == 9
    assert len(re.findall(r"\. (?:epoch \d+|layer \d|k \d+): trained on the image", figure.alt)) == 12
    assert len(figure.svg) < 500_000


def test_a_single_attack_has_no_course(store: Store) -> None:
    found = drawn(store, scores=inferred.scores((40,)))
    assert list(found) == ["accuracy"]
    assert "Below:" not in found["accuracy"].caption


def test_the_score_has_a_panel_for_each_thing_that_varies(golden: Golden, store: Store) -> None:
    found = drawn(store, scores=inferred.scores((10, 40), (3, 1), (20, 50)))["scores"]
    golden(found.alt)
    assert {"epoch", "layer, 0: the backbone's output", "neighbours that vote", "deja vu score"} <= set(words(found))
    assert "probe" not in found.alt + found.caption


def test_the_gap_of_linear_probes_stands_beside_it(golden: Golden, store: Store) -> None:
    found = drawn(store, scores=inferred.scores((10, 40)), probe=inferred.probes((10, 40)))["scores"]
    interval = gap((160, 200), (50, 100))
    assert interval.low is not None
    assert interval.high is not None
    golden(found.alt)
    assert "linear probe, train - test" in words(found)


def test_a_gap_is_of_all_models_together_and_has_newcombes_interval() -> None:
    found = gaps(inferred.probes((10,), (3, 0)))
    assert list(found) == [(10, 0), (10, 3)]
    assert pytest.approx(found[10, 3].value) == 0.3
    assert found[10, 3].n == 300  # both models' training images, and the same other ones
    # Newcombe 1998, table II, column (a), method 10: 56 of 70 less 48 of 80.
    example = gap((56, 70), (48, 80))
    assert pytest.approx((example.value, example.low, example.high), abs=5e-5) == (0.2, 0.0524, 0.3339)
    assert gaps(inferred.probes((10,)).slice(0, 1)) == {}
    assert gaps(pa.table({})) == {}


def test_fine_tuning_is_marked_where_it_begins(golden: Golden, store: Store) -> None:
    config = inferred.embedded()
    tuned = with_settings(config, epochs=20, checkpoints=(10, 20), fine_tuning=20)
    found = named(run(store, config=tuned, scores=inferred.scores((10, 20, 30, 40))))["scores"]
    golden(found.caption)
    plain = named(run(store, "deja_vu-2", with_settings(config, epochs=40, checkpoints=()), scores=inferred.scores()))
    assert "fine-tuned" not in plain["scores"].caption


def test_memorised_is_told_against_misrepresented(golden: Golden, store: Store) -> None:
    found = drawn(store, categories=inferred.categories())["categories"]
    golden(found.alt, "found.alt")
    golden(found.caption, "found.caption")
    assert {"memorised", "misrepresented", "correlated", "unassociated", "10", "20", "40"} <= set(words(found))
    once = named(run(store, "deja_vu-2", categories=inferred.categories((5,))))["categories"]
    golden(once.alt, "once.alt")
    layers = named(run(store, "deja_vu-3", categories=inferred.categories((5,), (3, 1, 0))))["categories"]
    assert re.findall(r"Layer \d", layers.alt) == ["Layer 0", "Layer 1", "Layer 3"]
    assert "layer, 0: the backbone's output" in words(layers)
    ks = named(run(store, "deja_vu-4", categories=inferred.categories((5,), (3,), (20, 50))))["categories"]
    golden(ks.alt, "ks.alt")


def shown(store: Store, config: DejaVu | None = None, show_images: bool = False, **fields: Any) -> Gallery:
    found = gallery(run(store, config=config, retrieval=inferred.retrieved(**fields)), show_images)
    assert found is not None
    return found


def picture_of(item: Item, strip: int, at: int) -> NDArray[np.uint8]:
    return array(item.strips[strip].pictures[at].png)


def test_a_picture_stands_with_its_crop_and_its_neighbours_by_both_models(golden: Golden, store: Store) -> None:
    config = inferred.embedded()
    held, side = catalog.load_with_boxes(config.data), config.training.augmentation.resolution
    found = shown(store, config)
    assert (found.shown, found.note, found.pictures) == (True, "", ())
    assert [item.group.split()[1].rstrip(",:") for item in found.items[::3]] == ["memorised", "correlated", "confident"]
    for at, item in enumerate(found.items[:3]):
        name = held.names[held.labels[at]]
        golden(item.title, "item.title")
        right, wrong = (strip.label for strip in item.strips)
        golden(right, "right")
        golden(wrong, "wrong")
        assert [picture.title for picture in item.pictures] == ["image", "crop"]
        rectangle, _ = windows(held, np.array([at]), "periphery", 8)
        assert (evaluation_pictures(held, np.array([at]), side, rectangle)[0] == array(item.pictures[1].png)).all()
        for strip, step in enumerate((100, 200)):
            rows = np.array([step * (at + 1) + j for j in range(1, 5)])
            for place, (row, image) in enumerate(zip(rows, evaluation_pictures(held, rows, side), strict=True)):
                assert (image == picture_of(item, strip, place)).all()
                near = held.names[held.labels[row]]
                caption = item.strips[strip].pictures[place]
                assert (f"✓ {near}" if near == name else near) == caption.title
                golden(caption.alt, "caption.alt")


def test_a_picture_stands_once_with_its_neighbours_by_each_layer(store: Store) -> None:
    found = shown(store, layers=(2, 0))
    assert len(found.items) == 9
    assert [f"{model} it, layer {layer}" for layer in (2, 0) for model in ("Trained on", "Not trained on")] == [
        strip.label.split(":")[0] for strip in found.items[0].strips
    ]


def test_a_null_says_that_neither_model_was_trained_on_the_pictures(store: Store) -> None:
    null = "This is a control run: both models were trained on other images"
    config = with_settings(inferred.embedded(), training_sets="other")
    tables = {"scores": inferred.scores(), "retrieval": inferred.retrieved()}
    made_up = run(store, config=config, **tables)
    found = gallery(made_up, False)
    assert found is not None
    assert null in found.caption
    assert null in named(made_up)["accuracy"].caption
    assert null not in named(run(store, "deja_vu-2", **tables))["accuracy"].caption


def test_at_most_ten_pictures_of_a_kind_are_shown_with_ten_neighbours_each(store: Store) -> None:
    found = shown(store, kinds=("confident",), each=14, near=15)
    assert len(found.items) == 10
    assert {10} == {len(strip.pictures) for item in found.items for strip in item.strips}
    assert [f"{rank}." for rank in range(1, 11)] == [item.title.split()[0] for item in found.items]


def test_there_is_no_gallery_where_nothing_was_retrieved(store: Store) -> None:
    assert gallery(run(store), True) is None
    assert gallery(run(store, "deja_vu-2", retrieval=RETRIEVAL.empty_table()), True) is None


def own(folder: Path) -> Dataset:
    """Nine images of the user's own in a table with their boxes, pinned; they are larger than the page shows them."""
    rows = ["path,label,left,top,right,bottom"]
    for at in range(9):
        pixels = np.zeros((300, 400, 3), np.uint8)
        pixels[..., 0], pixels[100:200, 150:250, 1] = 20 * at, 255
        saved(folder / f"{at}.png", jpeg(pixels, kind="PNG"))
        rows.append(f"{at}.png,{'<secret>' if at % 2 else 'plain'},150,100,250,200")
    saved(folder / "boxes.csv", "\n".join(rows) + "\n")
    return catalog.pin(Dataset(f"boxed:{folder / 'boxes.csv'}"))


def test_the_users_own_pictures_are_hidden_unless_asked_for(
    golden: Golden, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    data = own(tmp_path / "own")
    config = with_settings(inferred.embedded(), data=data, resolution=224)
    of_table = run(store, config=config, retrieval=inferred.retrieved(data, near=3))
    hidden = gallery(of_table, False)
    assert hidden is not None
    assert (hidden.shown, hidden.items) == (False, ())
    golden(hidden.note)
    private = gallery(of_table, True)
    assert private is not None
    assert len(private.items) == 9
    whole, crop = (array(picture.png) for picture in private.items[1].pictures)
    assert (whole.shape, crop.shape) == ((72, 96, 3), (96, 96, 3))
    assert tuple(crop[48, 48]) == (20, 0, 0)  # of image 1, whose object is green
    assert {(96, 96, 3)} == {array(each.png).shape for each in private.items[0].strips[0].pictures}
    page = pages.draw(of_table, show_images=True)
    assert page.read_text().count("data:image/png") == 0
    shown_page = (page.parent / PRIVATE_PAGE).read_text()
    assert shown_page.count("data:image/png") == 9 * (2 + 2 * 3)
    assert "class &lt;secret&gt;" in shown_page


def test_data_that_have_changed_and_pictures_that_are_gone_are_said(golden: Golden, store: Store) -> None:
    found = shown(store, with_settings(inferred.embedded(), data=Dataset("digits-on-photos", "0" * 64)))
    assert (found.shown, found.items) == (False, ())
    golden(found.note, "found.note")
    rows = [row | {"id": "china-999-999"} for row in inferred.retrieved(each=1).to_pylist()]
    gone = gallery(run(store, "deja_vu-2", retrieval=pa.Table.from_pylist(rows, RETRIEVAL)), False)
    assert gone is not None
    golden(gone.note)


def test_the_object_is_dashed_and_the_crop_solid() -> None:
    found = draw_outlines(np.full((32, 32, 3), 128, np.uint8), [[4, 8, 20, 24]], [22, 0, 32, 32])
    assert found.shape == (96, 96, 3)
    crop, box = (np.all(found == tuple(bytes.fromhex(colour[1:])), axis=2) for colour in (CROP, BOX))
    assert crop[:, 66].all()  # its left edge, three times 22
    assert crop[0, 66:].all()
    assert not crop[:, :66].any()
    rows, columns = np.nonzero(box)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (24, 71, 12, 59)
    assert 0.3 < box[24, 12:60].mean() < 0.7
    assert (found[40, 30] == 128).all()


def test_a_large_picture_is_brought_to_the_pages_size_and_a_box_that_leaves_it_is_cut() -> None:
    found = draw_outlines(np.zeros((300, 600, 3), np.uint8), [[-50, 100, 700, 200]], [0, 0, 600, 100])
    assert found.shape == (LONGEST // 2, LONGEST, 3)
    assert (found[16, 0] == BOX_RGB).all()
    assert list(dashes((0, 5, 7, 5))) == [(0, 5, 2, 5), (6, 5, 7, 5)]


BOX_RGB = np.frombuffer(bytes.fromhex(BOX[1:]), np.uint8)


def test_the_page_holds_every_picture_once_with_words_for_it(store: Store) -> None:
    page = pages.draw(run(store, **inferred.tables(retrieval=inferred.retrieved())))
    text = page.read_text()
    assert text.count("data:image/png;base64,") == 3 * 3 * (2 + 2 * 4)
    assert all(alt for alt in re.findall(r'<img [^>]*alt="([^"]*)"', text))
    assert text.count('<div class="asked">') == 9
    assert text.count("<ul") == text.count("</ul>")
    assert "Most memorised: named correctly only by the model trained on the image" in pages.words(page)
    assert '<h2 id="neighbours">Neighbours</h2>' in text


def test_a_page_of_as_many_pictures_as_are_shown_is_bounded(store: Store) -> None:
    retrieved = inferred.retrieved(each=12, near=12)
    assert pages.draw(run(store, **inferred.tables(retrieval=retrieved))).stat().st_size < 4_000_000


def sweep(store: Store, fields: list[dict[str, Any]], **tables: pa.Table) -> Run:
    cells = []
    for at, changed in enumerate(fields):
        epochs = (10, 20, 40 + at)  # so that no two cells decide on the same row of the summary
        found = {"scores": inferred.scores(epochs), "categories": inferred.categories(epochs)}
        found |= {"probe": inferred.probes(epochs), **tables}
        found["summary"] = summary(About(20, 3, 20, 40 + at), [found["scores"], found["categories"]])
        config = with_settings(inferred.embedded(), epochs=40 + at, checkpoints=(), **changed)
        parts = {name: [table] for name, table in found.items()}
        cells.append(made.run(store, f"deja_vu-{at}", parts, config, {**changed, "epochs": 40 + at}, audit="deja_vu"))
    return made.sweep(store, "deja_vu-sweep-1", cells)


def test_a_sweep_compares_scores_and_shares_though_its_cells_end_at_different_epochs(
    golden: Golden, store: Store
) -> None:
    found = named(sweep(store, [{"per_class": size} for size in (20, 40, 80)]))
    assert list(found) == ["sweep", "accuracies", "courses", "shares", "gaps"]
    golden([found["sweep"].title, found["sweep"].alt, found["gaps"].alt])
    for at, size in enumerate((20, 40, 80)):
        score = 0.4 + at / 100
        ends = f"[{score - 0.05:.3g}, {score + 0.05:.3g}]"
        assert f"per_class {size}: {score:.3g} {ends} after epoch {40 + at}." in found["courses"].alt
        assert f"per_class {size}: memorised {score:.3g} [" in found["shares"].alt
    assert {"per_class 20", "per_class 40", "per_class 80"} <= set(words(found["accuracies"]))


def test_a_sweep_of_names_has_a_row_and_a_panel_for_each(golden: Golden, store: Store) -> None:
    found = named(sweep(store, [{"criterion": name} for name in ("vicreg", "barlow", "supervised")]))
    assert {"criterion vicreg", "criterion barlow"} <= set(words(found["shares"]))
    assert {"vicreg", "barlow", "supervised"} <= set(words(found["accuracies"]))  # without room for the field's name
    golden(found["accuracies"].alt)


def test_cells_without_tables_are_left_out_of_a_sweep(store: Store) -> None:
    empty = {"scores": pa.table({}), "categories": pa.table({}), "probe": pa.table({})}
    cells = [
        made.run(
            store, f"deja_vu-{at}", {"summary": [], **({} if at else empty)}, setting={"seed": at}, audit="deja_vu"
        )
        for at in range(2)
    ]
    assert figures(made.sweep(store, "deja_vu-sweep-1", cells)) == []


def test_a_place_without_an_interval_is_told_without_one() -> None:
    alone = Curve(np.ones(1), np.full(1, 0.25), np.full(1, np.nan), np.full(1, np.nan))
    assert alone.describe() == "0.25"
    axes = Canvas().add_subplot()
    curve(alone, ("twin", "s", "-"))(axes)
    assert np.asarray(axes.lines[-1].get_ydata()).tolist() == [0.25]


@pytest.mark.slow
def test_a_real_run_is_drawn_with_the_numbers_of_its_tables(store: Store) -> None:
    found = pages.ran(store, Spec("deja_vu", "quickstart", set={"scale": "tiny"}))
    of_run = named(found)
    assert [*OWN, "estimates"] == list(of_run)
    assert found.verdict is not None
    (row,) = (row for row in found.summary if (row["metric"], row["setting"]) == found.verdict.rows[0])
    assert (
        f"{drawing.format_number(row['estimate'])}{drawing.format_interval(row['low'], row['high'])} at 2"
        in of_run["scores"].alt
    )
    shares = {row["metric"]: drawing.format_number(row["estimate"]) for row in found.summary}
    assert f"Epoch 2: memorised {shares['share memorised']} [" in of_run["categories"].alt
    shown = gallery(found, False)
    assert shown is not None
    assert shown.shown
    retrieved = found.table("retrieval").to_pylist()
    assert [row["id"] for row in retrieved if row["scope"] == "all" and row["rank"] <= 10] == [
        item.title.split()[1].rstrip(",") for item in shown.items
    ]
    page = pages.draw(found).read_text()
    assert page.count("data:image/png") == sum(
        2 + sum(len(each.pictures) for each in item.strips) for item in shown.items
    )
