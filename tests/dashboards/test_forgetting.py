"""The figures of forgetting's tables, and the tables' numbers in captions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dashboards import drawing
from dashboards.audits.forgetting.power import read_power
from dashboards.audits.forgetting.query_confidences import (
    ModelConfidences,
    OddsAxis,
    empirical_cdf,
    largest_gap,
    read_confidences,
    tick_label,
)
from dashboards.chart import Figure
from dashboards.figures import figures
from dashboards.run import Run
from orchestrator.store import Store
from tasks.audits.forgetting.exchangeability import scores
from tasks.audits.forgetting.measures.decisions import decisions as judged
from tasks.audits.forgetting.measures.power import MEASURE
from tasks.contract.measure import Tables
from tasks.contract.schemas import SUMMARY
from tests.dashboards import forgotten, made
from tests.dashboards.labels import words
from tests.dashboards.test_figures import named
from tests.support.golden import Golden
from tests.tasks.audits.forgetting import small_run

OWN = ["decisions", "ratios", "confidences", "distances", "power", "baselines", "fits"]


def run(store: Store, name: str = "forgetting-1", **tables: Any) -> Run:
    parts = {}
    for root, table in tables.items():
        parts[root] = table if isinstance(table, list) else [table]
    return made.run(store, name, {"summary": [], **parts}, forgotten.config(), audit="forgetting")


def draw_figures(store: Store, **tables: Any) -> dict[str, Figure]:
    return named(run(store, **tables))


def sorted_confidences(*confidence: float, resolution: float = 0.0) -> ModelConfidences:
    return ModelConfidences(("query", -1), 0, np.sort(np.array(confidence)), resolution)


def test_complete_run_has_all_its_figures(store: Store) -> None:
    result = draw_figures(store, **forgotten.tables(images=200))
    assert list(result) == OWN
    assert [name for name, figure in result.items() if "  " in figure.caption + figure.alt] == []


def test_unusable_tables_draw_nothing(store: Store) -> None:
    all_tables = {}
    for name in OWN:
        all_tables[name] = pa.concat_tables(forgotten.tables(1, 1, 20)[name])
    assert figures(run(store, **{name: pa.table({"column": [1]}) for name in OWN})) == []
    assert figures(run(store, "forgetting-2", **{name: all_tables[name].slice(0, 0) for name in OWN})) == []
    nothing = {}
    for name, table in all_tables.items():
        nothing[name] = pa.table(
            {field.name: pa.nulls(table.num_rows, field.type) for field in table.schema}, table.schema
        )
    assert figures(run(store, "forgetting-3", **nothing)) == []


def test_target_is_described_with_share_and_decision(golden: Golden, store: Store) -> None:
    result = draw_figures(store, decisions=forgotten.decisions())["decisions"]
    golden(result.alt, "found.alt")
    golden(result.caption, "found.caption")
    assert set(words(result)) >= {"forgotten", "not forgotten", "not assessable", "10 %: negligible"}
    uncontrolled = forgotten.changed(forgotten.decisions(1), {0: {"p_adjusted": None, "share": None}})
    assert named(run(store, "forgetting-2", decisions=uncontrolled)) == {}


def test_scores_are_compared_with_an_unexposed_model(golden: Golden, store: Store) -> None:
    tables = {
        "confidences": list(small_run.CONTROLLED_INPUTS),
        "decisions": judged(small_run.ABOUT, small_run.CONTROLLED_INPUTS),
    }
    result = draw_figures(store, **tables)["exchangeability"]
    clean, holding, _ = tables["decisions"].to_pylist()
    assert "a calibration model: one-sided KS 0." in result.alt
    scored = np.mean([scores(panel, small_run.REFERENCES) for panel in small_run.TARGET_MODELS[1]], axis=0)
    query = scored[: small_run.CONTROLS]
    control = scored[small_run.CONTROLS :]
    apart = stats.ks_2samp(query, control, alternative="less").statistic
    assert (
        f"{holding['name']}: one-sided KS {apart:.2g}, p = {drawing.format_number(holding['p_adjusted'])}."
        in result.alt
    )
    assert set(words(result)) >= {clean["name"], "a calibration model", "D_Q", "control set", "one-sided KS"}
    golden(result.caption)


def test_no_scores_are_drawn_without_control_set(store: Store) -> None:
    tables = {"confidences": list(small_run.INPUTS), "decisions": judged(small_run.ABOUT, small_run.INPUTS)}
    assert "exchangeability" not in draw_figures(store, **tables)


def test_ratio_is_described_with_interval_and_published_value(golden: Golden, store: Store) -> None:
    row: dict[str, Any] = dict.fromkeys(SUMMARY.names) | {"metric": "rho", "estimate": 0.09, "published": 0.0822}
    summary = pa.Table.from_pylist([row | {"setting": json.dumps({"target": "D_Q"})}], SUMMARY)
    tables: Any = {"summary": [summary], "ratios": [forgotten.ratios()], "distances": [forgotten.distances()]}
    result = named(made.run(store, "forgetting-1", tables, forgotten.config(), audit="forgetting"))["ratios"]
    golden(result.alt, "found.alt")
    golden(result.caption, "found.caption")
    assert "It decides nothing" in result.caption
    assert set(words(result)) >= {"one-sided rho", "two-sided rho, same run", "rho printed in the paper"}


def test_baselines_are_described_with_intervals_and_null_values(golden: Golden, store: Store) -> None:
    without = {0: dict.fromkeys(("quality", "quality_low", "quality_high", "quality_null"))}
    result = draw_figures(store, baselines=forgotten.changed(forgotten.baselines(2), without))["baselines"]
    golden(result.alt)
    assert set(words(result)) >= {"U-LiRA", "quality", "PrivLeak", "after retraining", "0.5 D_C"}
    golden(result.caption, "found.caption")


def test_empty_baselines_are_not_drawn(store: Store) -> None:
    nothing = dict.fromkeys(("u_lira", "quality", "privleak"))
    assert figures(run(store, baselines=forgotten.changed(forgotten.baselines(1), {0: nothing}))) == []


def test_undefined_ratios_and_third_party_models_keep_rows(golden: Golden, store: Store) -> None:
    changes = {0: forgotten.UNDEFINED, 1: forgotten.GIVEN | {"name": "from the owner.safetensors", "high": 30.0}}
    result = draw_figures(store, ratios=forgotten.changed(forgotten.ratios(2), changes))["ratios"]
    assert "D_Q: one-sided rho undefined." in result.alt or "D_Q: one-sided rho undefined;" in result.alt
    golden(result.alt)
    assert any(text.startswith("undefined: no cal") for text in words(result))
    golden(result.caption, "found.caption")
    assert not any(text in ("10", "20", "30") for text in words(result))  # no interval stretches the axis


def test_single_target_and_replicate_have_no_intervals(golden: Golden, store: Store) -> None:
    result = draw_figures(store, **forgotten.tables(1, 1, 50))
    assert list(result) == OWN
    golden(result["ratios"].alt, "alt")
    golden(result["ratios"].caption)
    assert "trained on all of D_Q" not in words(result["ratios"])
    assert "null" not in result["distances"].caption


def test_twelve_of_thirteen_targets_have_panels(golden: Golden, store: Store) -> None:
    tables = forgotten.tables(13, 2, 50)
    result = draw_figures(store, **{name: tables[name] for name in ("ratios", "confidences", "distances")})
    golden(result["confidences"].caption)
    assert len([text for text in words(result["confidences"]) if text.startswith("one-sided KS 0.")]) == 12
    for name in ("ratios", "distances"):
        assert set(words(result[name])) >= {"D_C, model 2", "D_C + 0.1 D_Q, model 2"}


def test_distance_is_that_of_the_one_sided_test() -> None:
    draws = np.random.default_rng(0)
    a, b = draws.beta(2, 1, 400).round(2), draws.beta(1, 1, 300)
    result = largest_gap(sorted_confidences(*a, resolution=0.01), sorted_confidences(*b))
    assert result.below == pytest.approx(stats.ks_2samp(b.round(2), a, alternative="greater").statistic)
    for share, values in zip(result.shares, (a, b.round(2)), strict=True):
        assert share == pytest.approx(np.mean(values <= result.confidence + 1e-6))
    assert [
        largest_gap(sorted_confidences(*one), sorted_confidences(*second)).below
        for one, second in (((0.2, 1.0), (0.2, 1.0)), ((0.2, 0.3), (0.5, 1.0)), ((0.5, 1.0), (0.2, 0.3)))
    ] == [0, 0, 1]


def test_line_follows_quantiles_and_steps_at_ties() -> None:
    values = np.sort(np.concatenate([np.linspace(0.01, 0.99, 6000), np.ones(4000)]))
    places = OddsAxis.from_models([sorted_confidences(*values)])
    x, y = empirical_cdf(values, places, 50)
    assert len(x) <= 102
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()
    middle = np.searchsorted(values, 0.5) / len(values)
    assert middle == pytest.approx(np.interp(0.0, x, y), abs=1 / 50)
    edge = x >= places.high + 0.5
    assert y[edge].min() == pytest.approx(0.6, abs=1e-9)
    assert y[edge].max() == pytest.approx(1.0, abs=1e-9)
    # fewer than one in a thousand of those below 1
    assert places.saturated == 4000
    assert places.below == 5


def test_extreme_confidences_are_collected_at_the_edges(golden: Golden) -> None:
    places = OddsAxis.from_models([sorted_confidences(0.0, 1e-30, 0.5, 1.0)])
    assert places.positions(np.array([0.0, 1e-30, 0.5, 1.0])).tolist() == [
        places.low - 0.5,
        places.low - 0.5,
        0.0,
        places.high + 0.5,
    ]
    golden(places.describe())
    assert tick_label(-4) == "10⁻⁴"
    assert tick_label(-2) == "0.01"
    assert tick_label(2) == "0.99"
    assert tick_label(6) == "1–10⁻⁶"


def test_models_are_separated_in_any_chunking() -> None:
    parts = forgotten.confidences(2, 2, 30, printed=True)
    once = read_confidences(pa.concat_tables(parts))
    split = read_confidences(pa.concat_tables(parts).combine_chunks())
    assert len(once) == 8
    for one, second in zip(once, split, strict=True):
        assert one.who == second.who
        assert one.replicate == second.replicate
        assert one.resolution == second.resolution
        assert (one.confidence == second.confidence).all()
    (target,) = [item for item in once if (item.who, item.replicate) == (("target", 1), 1)]
    assert target.resolution == 1e-3
    assert sorted(parts[-1]["confidence"].to_pylist()) == target.confidence.tolist()


def below(query: Any, second: Any) -> float:
    return float(stats.ks_2samp(second, query, alternative="greater").statistic)


def test_confidences_state_distances_of_first_models(store: Store) -> None:
    parts = forgotten.confidences(1, 2, 100)
    result = draw_figures(store, ratios=forgotten.ratios(1), confidences=parts)["confidences"]
    query = parts[0]["confidence"].to_pylist()
    calibration = parts[2]["confidence"].to_pylist()
    target = parts[4]["confidence"].to_pylist()
    for name, second in (("query and calibration model", calibration), ("D_Q", target)):
        assert f"{name}: one-sided KS {drawing.format_number(below(query, second))} at c = " in result.alt
    assert "n: 100 images, 2 models of each" in result.caption


def test_partial_run_is_drawn(store: Store) -> None:
    parts = forgotten.confidences(1, 2, 40)
    result = draw_figures(store, confidences=parts[4:])["confidences"]
    assert "target 0: median c" in result.alt
    assert "KS" not in result.caption + result.alt + "".join(words(result))


def test_distances_are_described_with_their_spread(golden: Golden, store: Store) -> None:
    table = forgotten.distances(1)
    able = draw_figures(store, distances=table)["distances"]
    golden(able.caption, "able.caption")
    golden(able.alt)


def test_power_states_the_smallest_detected_share(golden: Golden, store: Store) -> None:
    result = draw_figures(store, power=forgotten.power(), decisions=forgotten.decisions(1))["power"]
    golden(result.caption, "found.caption")
    golden(result.alt, "found.alt")
    assert set(words(result)) >= {"none", "0.1 %", "50 %", "none of D_Q: false alarms"}
    assert "third-party models" not in words(result)
    none = read_power(forgotten.power((0, 9), (0.0, 0.5)))
    assert none is not None
    golden(none.describe(), "none.describe()")


def test_third_party_models_overlay_known_effects(golden: Golden, store: Store) -> None:
    decisions = forgotten.changed(forgotten.decisions(1), {0: {"source": "outputs"}})
    result = draw_figures(store, power=forgotten.power(), decisions=decisions)["power"]
    assert "third-party models" in words(result)
    golden(result.caption)


def test_smallest_share_equals_the_summary(store: Store) -> None:
    table = forgotten.power()
    assert MEASURE.rows is not None
    rows = [row for row in MEASURE.rows(Tables([table]), None) if row["metric"] == "smallest share found"]
    result = read_power(table)
    assert [0.03] == [row["estimate"] for row in rows] == [result and result.smallest]


def test_power_without_control_share_is_drawn(golden: Golden, store: Store) -> None:
    result = draw_figures(store, power=forgotten.power((5,), (0.1,)))["power"]
    golden(result.caption)
    assert "none of D_Q: false alarms" not in words(result)


def test_trainings_below_95_percent_are_marked(golden: Golden, store: Store) -> None:
    result = draw_figures(store, fits=forgotten.fits(2, 3))["fits"]
    golden(result.alt)
    assert "below 95 %" in words(result)
    assert "target 1" in words(result)  # by its number, because its name is unknown


def test_sweep_overlays_the_power_of_its_cells(golden: Golden, store: Store) -> None:
    cells = []
    for index, examples in enumerate((60, 6000)):
        tables = {"summary": [], "power": [forgotten.power()]}
        setting = {"query.examples": examples}
        cells.append(made.run(store, f"forgetting-{index}", tables, forgotten.config(), setting, audit="forgetting"))
    empty = made.run(
        store, "forgetting-9", {"summary": []}, forgotten.config(), {"query.examples": 9}, audit="forgetting"
    )
    result = named(made.sweep(store, "forgetting-sweep-1", [*cells, empty]))
    assert list(result) == ["powers"]
    assert set(words(result["powers"])) >= {"query.examples 60", "query.examples 6000"}
    golden(result["powers"].alt)
    assert figures(made.sweep(store, "forgetting-sweep-2", [cells[0], empty])) == []


def test_million_confidences_make_a_small_figure(store: Store) -> None:
    panel = run(store, confidences=forgotten.confidences(4, 3, 60_000))
    figures(run(store, "forgetting-2", power=forgotten.power()))
    (result,) = figures(panel)
    assert len(result.svg) < 150_000
