"""The figures of a run: figures drawn from each table, captions and descriptions."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import orchestrator
from dashboards import drawing, estimates
from dashboards.chart import Figure
from dashboards.figures import figures
from dashboards.run import Run, open_run
from orchestrator.store import Store, open_store
from tasks.audits.unique_feature.measures.learning_curve import HISTORY
from tasks.audits.unique_feature.pairs.canary_scores import CANARY_SCORES
from tasks.contract.schemas import SUMMARY
from tests.dashboards import labels, made
from tests.dashboards.test_drawing import COLOUR
from tests.support.golden import Golden
from tests.support.shell import Shell

PRINTED_WIDTH = 329  # points of a figure on A4: 11.6 cm next to its caption
PRINTED_HEIGHT = 740  # 26 cm
OWN = ["effect", "separation", "divergences", "published-test", "histories"]


def named(run: Run) -> dict[str, Figure]:
    result = figures(run)
    assert len(result) == len({figure.name for figure in result})
    for figure in result:
        ElementTree.fromstring(figure.svg)
        lights = {light for light, _ in drawing.PALETTE.values()}
        assert set(COLOUR.findall(figure.svg)) <= lights
        assert "nan" not in figure.svg + figure.alt + figure.caption
        assert figure.title.endswith("?")
        assert labels.cut(figure.svg) == []
        width, height = labels.size(figure.svg)
        scale = min(PRINTED_WIDTH / width, PRINTED_HEIGHT / height)
        assert scale * min(label.size for label in labels.labels(figure.svg)) >= 7
        assert figure.alt
        assert figure.caption
    return {figure.name: figure for figure in result}


def summarised(store: Store, *rows: dict[str, Any]) -> dict[str, Figure]:
    empty: dict[str, Any] = dict.fromkeys(SUMMARY.names)
    table = pa.Table.from_pylist([empty | row for row in rows], SUMMARY)
    return named(made.run(store, "toys-1", {"summary": [table]}, audit="toys"))


@pytest.mark.slow
def test_figures_show_numbers_of_tables(smoke: Run) -> None:
    result = named(smoke)
    assert list(result) == [OWN[0], "canaries", *OWN[1:], "estimates", "estimates-2"]
    effect = next(row for row in smoke.summary if row["metric"] == "M_w effect")
    for name in ("estimate", "low", "high"):
        assert drawing.format_number(effect[name]) in result["effect"].alt
        assert drawing.format_number(effect[name]) in result["estimates"].alt
    assert "3 pairs of trainings" in result["effect"].caption
    pairs = smoke.table("canary_scores").to_pylist()
    positives = sum(pair["twin_m_welch_p"] < 0.05 for pair in pairs)
    assert f"and {positives} of 3 control models" in result["published-test"].alt
    above = sum(pair["average_d_u"] > pair["average_d_r"] for pair in pairs)
    assert f"{above} of 3 canary models" in result["divergences"].alt


@pytest.mark.slow
def test_drawing_needs_no_torch_and_no_home(smoke: Run, tmp_path: Path) -> None:
    script = f"""
import os, sys
from dashboards.run import open_run
from dashboards.figures import figures
from dashboards.page import gallery
from orchestrator.store import open_store
run = open_run(open_store({smoke.store.location!r}), {smoke.name!r})
count = len(figures(run))
assert gallery(run, False).pictures
loaded = [name for name in ("torch", "ray", "mlflow", "pandas", "matplotlib.pyplot") if name in sys.modules]
print(count, "MPLCONFIGDIR" in os.environ, loaded)
"""
    hidden = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR")
    env = {name: value for name, value in os.environ.items() if name not in hidden} | {"HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], env=env)
    assert done.stdout.strip() == "8 False []"
    assert done.stderr == ""
    assert list(tmp_path.rglob("*")) == []


def test_commands_that_draw_nothing_do_not_load_matplotlib(tmp_path: Path) -> None:
    commands = [["--help"], ["list"], ["plan", "unique_feature", "--preset", "smoke"], ["runs"], ["status"]]
    script = f"""
import sys
from orchestrator.cli import main
for arguments in {commands!r}:
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit:
        print(arguments, "matplotlib" in sys.modules)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=Shell(tmp_path).env)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert [f"{arguments} False" for arguments in commands] == lines


def test_run_without_results_has_no_figures(store: Store) -> None:
    assert figures(made.run(store, "unique_feature-1", {"summary": [], "canary_scores": [], "history": []})) == []
    assert figures(made.run(store, "toys-1", {"summary": []}, audit="toys")) == []


def test_unusable_tables_have_no_figures(store: Store) -> None:
    empty = {name: [schema.empty_table()] for name, schema in TABLES.items()}
    assert figures(made.run(store, "unique_feature-1", empty)) == []
    other_tables = {}
    for name in ("canary_scores", "history"):
        other_tables[name] = [pa.table({"column": [1]})]
    assert figures(made.run(store, "unique_feature-2", {"summary": [], **other_tables})) == []


TABLES = {"summary": SUMMARY, "canary_scores": CANARY_SCORES, "history": HISTORY}


def test_partial_results_are_drawn(store: Store) -> None:
    tables = made.tables(4)
    part = {"summary": [], "canary_scores": [], "history": tables["history"][:2]}
    assert list(named(made.run(store, "unique_feature-1", part))) == ["histories"]
    part = {"summary": [], "canary_scores": tables["canary_scores"], "history": []}
    result = named(made.run(store, "unique_feature-2", part))
    assert OWN[:4] == list(result)
    assert "no interval" in result["effect"].caption


def test_single_canary_has_neither_interval_nor_band(store: Store) -> None:
    result = named(made.run(store, "unique_feature-1", made.tables(1)))
    assert list(result) == [*OWN, "estimates", "estimates-2"]
    assert "no interval" in result["effect"].caption
    assert "interval" not in result["effect"].alt
    assert "band" not in result["separation"].alt


def test_canaries_without_number_are_not_counted(store: Store) -> None:
    rows = made.pairs(6, 0.4, 0)
    for index, nothing in enumerate((None, math.nan, math.inf)):
        for name in ("m", "m_w_probe", "m_w_probe_effect", "average_d_u", "m_welch_p"):
            rows[index][name] = nothing
    tables = made.tables(6) | {"canary_scores": [pa.Table.from_pylist(rows, CANARY_SCORES)]}
    result = named(made.run(store, "unique_feature-1", tables))
    assert "3 of 3 effects lie above 0" in result["effect"].alt
    assert "no interval" in result["effect"].caption  # the summary's interval is over other canaries
    assert " of 3 canary models" in result["divergences"].alt


def test_nan_loss_does_not_prevent_other_figures(store: Store) -> None:
    history = made.history(0, 8).to_pylist()
    for row in history[:3]:
        row |= {"validation_loss": math.nan, "validation_accuracy": None}
    tables = made.tables(2) | {"history": [pa.Table.from_pylist(history, HISTORY)]}
    assert "histories" in named(made.run(store, "unique_feature-1", tables))


def test_external_audit_has_figures_of_its_summary(tmp_path: Path) -> None:
    report = orchestrator.run("toys", preset="few", store=tmp_path, address="none", mlflow="off", report=False)
    result = named(open_run(open_store(tmp_path), report.run))
    assert list(result) == ["estimates"]
    assert result["estimates"].alt == "sum (all): 15, n 6."
    assert "Sampling unit: part." in result["estimates"].caption


def test_estimate_is_described_with_interval_and_null(golden: Golden, store: Store) -> None:
    row = {"metric": "M", "setting": '{"k": 3}', "estimate": 0.25, "low": 0.1, "high": 0.4, "n": 7, "null": 0.0}
    result = summarised(store, row, row | {"published": 0.5, "setting": '{"data": "mnist"}'})
    assert result["estimates"].alt == "M (k 3): 0.25, 0.1 to 0.4, null 0, n 7."
    golden(result["published"].alt)
    assert "published" in result["published"].svg


def test_rows_without_an_estimate_are_left_out(store: Store) -> None:
    rows = []
    for value in (None, math.nan, math.inf):
        rows.append({"metric": "M", "setting": "{}", "estimate": value})
    assert summarised(store, *rows) == {}


def test_metrics_of_different_size_have_own_scales(store: Store) -> None:
    def row(metric: str, size: float) -> dict[str, Any]:
        return {"metric": metric, "setting": "{}", "estimate": size, "low": 0.0, "high": 2 * size, "n": 3}

    together = summarised(store, row("M", 1.0), row("M effect", 0.9))["estimates"]
    apart = summarised(open_store(Path(store.location) / "other"), row("M", 1.0), row("M effect", 1e-6))["estimates"]
    assert height(together) < height(apart)


def test_long_labels_omit_shared_words(store: Store) -> None:
    setting = {"epoch": 1000, "k": 100, "layer": 3}
    rows = []
    for metric, more in (
        ("score", {"percent": 20}),
        ("score", {"percent": 100}),
        ("share", {}),
        ("share", {"k": 200}),
        ("alone", {"percent": 20}),
    ):
        rows.append({"metric": metric, "setting": json.dumps({**setting, **more}), "estimate": 0.5, "n": 3})
    texts = labels.words(summarised(store, *rows)["estimates"])
    assert set(texts) >= {"percent 20", "percent 100"}
    assert {"epoch 1000, k 100, layer 3", "k 100", "k 200"} & set(texts) == {"k 100", "k 200"}
    assert any(text.startswith("epoch…, k 100, layer") for text in texts)  # no part is shared with another row


def height(figure: Figure) -> float:
    box = re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', figure.svg)
    assert box is not None
    return float(box[1])


def cells(store: Store, settings: list[dict[str, Any]], **fields: Any) -> Run:
    made_up = []
    for index, setting in enumerate(settings):
        made_up.append(
            made.run(
                store,
                f"unique_feature-{index}",
                made.tables(3, effect=0.1 * index, seed=index),
                setting=setting,
                **fields,
            )
        )
    return made.sweep(store, "unique_feature-sweep-1", made_up)


PROBE = ("M_w effect", '{"images": "probe"}')  # the row that decides the answer


def test_sweep_figure_shows_cells_over_varied_field(golden: Golden, store: Store) -> None:
    settings = []
    for rate in (1e-3, 1e-4):
        for kind in ("a", "b"):
            settings.append({"learning_rate": rate, "network": kind})
    run = cells(store, settings)
    result = named(run)
    assert list(result) == ["sweep"]
    figure = result["sweep"]
    golden(figure.title)
    texts = labels.words(figure)
    assert texts.index("0.0001") < texts.index("0.001")
    assert set(texts) >= {"network a", "network b", "M_w effect, probe"}
    for cell in run.cells:
        row = next(row for row in cell.summary if (row["metric"], row["setting"]) == PROBE)
        assert drawing.format_number(row["estimate"]) in figure.alt
    assert "n of each: 3 (pair of trainings)" in figure.caption


def test_sweep_counts_cells_with_results(store: Store) -> None:
    finished = made.run(store, "unique_feature-1", made.tables(2), setting={"seed": 1})
    absent = made.run(store, "unique_feature-2", {"summary": []}, setting={"seed": 2})
    assert (
        "1 of 2 cells have results."
        in named(made.sweep(store, "unique_feature-sweep-1", [finished, absent]))["sweep"].caption
    )
    assert figures(made.sweep(store, "unique_feature-sweep-2", [absent])) == []


def test_older_cell_takes_value_from_config(store: Store) -> None:
    before = made.run(store, "unique_feature-1", made.tables(2), made.embedded(seed=7))
    fresh = made.run(store, "unique_feature-2", made.tables(2), made.embedded(seed=8), {"seed": 8})
    figure = named(made.sweep(store, "unique_feature-sweep-1", [before, fresh]))["sweep"]
    assert "M_w effect, probe at seed 7: " in figure.alt


def test_sweep_with_many_lines_lists_cells(store: Store) -> None:
    settings = [{"a": x, "b": y} for x in ("p", "q") for y in range(8)]
    figure = named(
        cells(store, [{"a": setting["b"], "b": f"kind {setting['b']}{setting['a']}"} for setting in settings])
    )["sweep"]
    assert figure.alt.count(" at ") == 16
    assert figure.svg.count("kind") >= 16


def test_many_metrics_are_split_into_printable_figures(store: Store) -> None:
    count = 2 * estimates.LONGEST
    long = []
    for number in range(count):
        long.append({"metric": "m", "setting": json.dumps({"class": number}), "estimate": float(number)})
    split = summarised(store, *(row | {"n": 3, "unit": "model"} for row in long))
    assert list(split) == ["estimates", "estimates-2"]
    assert [figure.alt.count("n 3.") for figure in split.values()] == [estimates.LONGEST] * 2
    assert [figure.caption[-14:] for figure in split.values()] == ["Figure 1 of 2.", "Figure 2 of 2."]


def test_cut_label_is_detected() -> None:
    text = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 50 20"><text style="{}" x="50" y="9">{}</text></svg>'
    svgs = {}
    for words in ("short", "too long for it"):
        svgs[words] = text.format("font-size: 9px; text-anchor: end", words)
    assert [labels.cut(svg) for svg in svgs.values()] == [[], ["too long for it"]]


def test_fields_that_vary_together_share_a_label(golden: Golden, store: Store) -> None:
    table = [("mnist", "mlp1", 128), ("fashion-mnist", "mlp1", 128), ("mnist", "cnn1", 128), ("cifar10", "cnn2", 512)]
    settings = []
    for data, network, batch in table:
        settings.append({"data": data, "network": network, "batch": batch})
    figure = named(cells(store, settings))["sweep"]
    golden(figure.title)
    assert " at data fashion-mnist, network mlp1: " in figure.alt
    assert "512" not in labels.words(figure)


def test_data_set_is_named_without_digest(store: Store) -> None:
    settings = [{"data": f"{name}@{'0' * 64}"} for name in ("digits", "mnist")]
    assert json.dumps("digits")[1:-1] in named(cells(store, settings))["sweep"].svg
