"""Figures of unique_feature's other tables, and the numbers in their texts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dashboards import drawing
from dashboards.audits.unique_feature.detection import estimator_looks
from dashboards.audits.unique_feature.family import read_models
from dashboards.audits.unique_feature.latents import excitation_rates
from dashboards.audits.unique_feature.pictures import CANARIES, PROBE_IMAGES
from dashboards.audits.unique_feature.read_out import LETTERS
from dashboards.chart import Figure
from dashboards.figures import figures
from dashboards.page import gallery
from dashboards.run import Run
from orchestrator.store import Store, open_store
from tasks.audits.unique_feature import population
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS, REFERENCE_RANKS
from tasks.audits.unique_feature.pairs.bets import EVIDENCE
from tasks.audits.unique_feature.pairs.canary_verdicts import CANARY_VERDICTS, EXACT_VERDICTS
from tasks.audits.unique_feature.pairs.private_ranks import bounded_share_rows, rank_bounds
from tasks.audits.unique_feature.population import FAMILY
from tasks.contract.epsilon_rows import Spent, epsilon_rows
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, row
from tasks.datasets.features import Words, burn
from tasks.numerics.ranks import rank_p_value
from tasks.numerics.statistics import proportion
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining
from tasks.training.recipe import Privacy
from tests.dashboards import labels, made
from tests.dashboards.test_figures import named
from tests.support.golden import Golden

TABLES = (
    "canary_scores",
    "canary_verdicts",
    "evidence",
    "history",
    "chosen",
    "traced",
    "influence",
    "course",
    "latents",
    "family",
    "detection",
    "curves",
    "exact_ranks",
)


def draw_figures(store: Store, *rows: dict[str, Any], **tables: pa.Table) -> dict[str, Figure]:
    """The figures of a run with only these tables."""
    summary = pa.Table.from_pylist([dict.fromkeys(SUMMARY.names) | row for row in rows], SUMMARY)
    return named(made.run(store, "unique_feature-1", {"summary": [summary]} | {k: [v] for k, v in tables.items()}))


def sub_store(store: Store, name: str) -> Store:
    """Another store inside the folder of this one."""
    return open_store(Path(store.location) / name)


@pytest.mark.parametrize("name", TABLES)
def test_empty_or_foreign_table_draws_nothing(store: Store, name: str) -> None:
    assert draw_figures(store, **{name: pa.table({"column": [1]})}) == {}
    tables = {"course": made.course(1), "latents": made.latents(1), "curves": made.curves({"a": 0.5})}
    tables |= {"family": made.family([("given", None, None)]), "influence": made.influence(10)}
    tables |= {"exact_ranks": made.exact_ranks(3)}
    assert draw_figures(store, **{name: tables.get(name, made.scores(1, 1, 1)).slice(0, 0)}) == {}


def test_ranges_compare_seeds_with_control_models(golden: Golden, store: Store) -> None:
    result = draw_figures(store, canary_scores=made.scores(4, 5, 1, effect=0.1))
    assert "evaluations" not in result
    words = result["ranges"].alt
    golden(words)
    assert "5 trainings" in result["ranges"].caption
    assert "stroke-dasharray" in result["ranges"].svg


def test_single_trainings_have_no_range(store: Store) -> None:
    assert "ranges" not in draw_figures(store, canary_scores=made.scores(4, 1, 1))


def test_evaluations_are_compared_with_trainings(golden: Golden, store: Store) -> None:
    result = draw_figures(store, canary_scores=made.scores(10, 5, 3, effect=0.1))
    words = result["evaluations"].alt
    assert "from 0.001 to 0.901, 0 of 10 below 0" in words
    golden(words)
    assert "evaluated 3 times" in result["evaluations"].caption


def test_further_evaluations_are_no_further_samples(golden: Golden, store: Store) -> None:
    once = draw_figures(sub_store(store, str(1)), canary_scores=made.scores(6, 2, 1))
    thrice = draw_figures(sub_store(store, str(3)), canary_scores=made.scores(6, 2, 3))
    for name in ("effect", "separation", "divergences", "published-test", "ranges"):
        assert once[name].alt == thrice[name].alt
    assert "12 effects" in thrice["effect"].alt
    golden(thrice["effect"].caption)


def test_learning_curve_states_onset_epoch(golden: Golden, store: Store) -> None:
    result = draw_figures(store, course=made.course(6, epochs=30, onset=5))["course"]
    golden(result.alt, "found.alt")
    assert "0.025 at the kept epoch" in result.alt  # the mean M
    golden(result.caption, "found.caption")


def test_learning_curve_of_one_pair_has_no_interval(golden: Golden, store: Store) -> None:
    result = draw_figures(store, course=made.course(1))["course"]
    golden(result.caption)
    assert "interval of the effect" not in result.alt


def test_units_excited_by_feature_are_labelled(golden: Golden, store: Store) -> None:
    result = draw_figures(store, latents=made.latents(5))["latents"]
    texts = labels.words(result)
    assert texts.count("41") == 2  # in the canary models' panel of each layer only
    assert "7" not in texts
    golden(result.alt)
    assert "41" not in result.alt.split("dense2, 256 units, control models")[1].split(".", 1)[0]
    golden(result.caption, "found.caption")


def test_unit_without_row_was_never_excited() -> None:
    table = pa.table({"units": [4, 4, 4], "unit": [1, 1, 2], "unique": [0.5, 0.1, 0.4], "random": [0.0, 0.2, 0.0]})
    unique, random = excitation_rates(table, 2)
    assert unique.tolist() == [0.0, 0.3, 0.2, 0.0]
    assert random.tolist() == [0.0, 0.1, 0.0, 0.0]


def test_influence_figure_states_correlation(golden: Golden, store: Store) -> None:
    metric = {"metric": "correlation of self-influence and M", "n": 4, "unit": "training"}
    rows = [
        metric | {"setting": '{"model": "canary"}', "estimate": 0.21, "low": -0.17, "high": 0.53, "published": 0.43},
        metric | {"setting": '{"model": "twin"}', "estimate": 0.05},
    ]
    chosen_images = made.chosen(4, 2)
    result = draw_figures(store, *rows, canary_scores=made.scores(4, 1, 1, effect=0.1), chosen=chosen_images)[
        "influence"
    ]
    assert "Pearson's r 0.21 [-0.17, 0.53] (published 0.43)" in result.svg
    golden(result.alt, "found.alt")
    # Canaries 0 to 3 have M_w of 0, .1, .2, .3, and self-influence rises with their number.


def test_chosen_images_are_marked_among_all(golden: Golden, store: Store) -> None:
    result = draw_figures(store, influence=made.influence(1001), chosen=made.chosen(1001, 15))["influences"]
    golden(result.alt)
    assert "10⁻¹²" in result.svg


def test_images_without_self_influence_are_counted(golden: Golden, store: Store) -> None:
    table = pa.table({"row": [0, 1, 2], "self_influence": [0.0, 1.0, 10.0]})
    golden(draw_figures(store, influence=table)["influences"].caption)


def test_arrows_show_change_of_self_influence(golden: Golden, store: Store) -> None:
    result = draw_figures(store, traced=made.traced(100, 1))["traced"]
    golden(result.alt)
    assert "7.5e+04 with it" in result.alt
    half = made.traced(100, 1).slice(0, 1)
    assert draw_figures(sub_store(store, "half"), traced=half) == {}


def test_estimators_are_ordered_by_detection_rate(golden: Golden, store: Store) -> None:
    rates = {"weak": 0.1, "strong": 0.8}
    detections = made.detection({"strong": (17, 1), "weak": (12, 10)})
    result = draw_figures(store, curves=made.curves(rates), detection=detections)["detection"]
    at_level = [row for row in made.curves(rates).to_pylist() if row["false_positive_rate"] == 0.05]
    strong = next(row for row in at_level if row["estimator"] == "strong")
    words = f"strong {strong['detection_rate']:.3g} [{strong['low']:.3g}, {strong['high']:.3g}], weak 0.1"
    assert words in result.alt
    golden(result.alt)
    texts = labels.words(result)
    assert texts.index("strong") < texts.index("weak")
    golden(result.caption, "found.caption")


def test_excess_estimators_are_described_not_drawn(golden: Golden, store: Store) -> None:
    rates = {}
    for index in range(len(drawing.SERIES) + 2):
        rates[f"estimator {index}"] = 0.9 - index / 20
    result = draw_figures(store, curves=made.curves(rates))["detection"]
    golden(result.caption)
    assert "estimator 9" not in result.svg
    assert "estimator 9" in result.alt
    assert "Mark:" not in result.caption


def test_detection_rates_by_number_of_models(golden: Golden, store: Store) -> None:
    rows = []
    for name, rate in (("a", 0.1), ("b", 0.2)):
        for models in (4, 1):
            rows.append(
                {
                    "metric": "detection rate by number of models",
                    "setting": json.dumps({"estimator": name, "models": models}),
                    "estimate": rate * models,
                    "n": 9,
                }
            )
    result = draw_figures(store, *rows)["by-models"]
    golden(result.alt)


def test_given_model_ranks_feature_in_family(golden: Golden, store: Store) -> None:
    result = draw_figures(store, family=made.family([("given", None, None)], members=101))["family"]
    golden(result.alt, "found.alt")
    golden(result.caption, "found.caption")
    assert "100 others" in result.caption


def test_pairs_are_ranked_with_control_models(golden: Golden, store: Store) -> None:
    models = [(kind, canary, 3) for kind in ("twin", "canary") for canary in range(12)]
    result = draw_figures(store, family=made.family(models, members=41))["family"]
    golden(result.alt)
    assert re.search(r"\d of 12 control models have p at most 0.05", result.alt)
    texts = labels.words(result)
    assert texts.index("canary 0") + 1 == texts.index("control of 0")
    assert "canary 10" not in texts
    golden(result.caption, "found.caption")


def test_called_canaries_are_named(golden: Golden, store: Store) -> None:
    rows = []
    for index in range(9):
        rows.append(
            {
                "canary": 100 + index,
                "label": 1,
                "pairs": 1,
                "shift": 1.0 - index / 10,
                "rank": 1 + 20 * index,
                "members": 201,
            }
            | {"p_value": (1 + 20 * index) / 201, "adjusted_p": 0.02 if index < 2 else 0.5, "called": index < 2}
        )
    result = draw_figures(store, canary_verdicts=pa.Table.from_pylist(rows, CANARY_VERDICTS))["canaries"]
    golden(result.alt)
    golden(result.caption, "found.caption")
    assert "could not be called" not in result.caption  # 9 / (5 % of 201) is below 1


def test_evidence_figure_states_deciding_pair(golden: Golden, store: Store) -> None:
    rows = []
    for pair, (rank, value) in enumerate([(3, 6.85), (90, 3.99), (1, 58.9)], start=1):
        rows.append(
            {"pair": pair, "canary": 100 + pair, "rank": rank, "members": 201, "bet": 1.0, "evidence": value}
            | {"level": 0.05, "decided": value >= 20}
        )
    result = draw_figures(store, evidence=pa.Table.from_pylist(rows, EVIDENCE))["evidence"]
    golden(result.alt, "found.alt")
    golden(result.caption, "found.caption")


def test_exact_ranks_show_reconstructed_cells(golden: Golden, store: Store) -> None:
    rows = []
    for index in range(7):
        rows.append(
            {"canary": 100 + index, "label": 1, "pairs": 1, "read_out": 14 - index, "inked": 14, "read_by_chance": 7.84}
            | {
                "glyphs": 4457400,
                "p_value": 10.0 ** (index - 6.5),
                "adjusted_p": 0.02 if index < 4 else 0.5,
                "called": index < 4,
            }
        )
    result = draw_figures(store, canary_verdicts=pa.Table.from_pylist(rows, EXACT_VERDICTS))["canaries"]
    golden(result.alt, "found.alt")
    golden(result.caption, "found.caption")
    assert "cells of the glyph read out" in result.svg
    assert result.svg.count("10⁻") >= 3


def test_estimator_has_same_look_in_every_figure() -> None:
    single_look = estimator_looks(["M"])
    looks = estimator_looks(["random against random", "M", "one of tomorrow"])
    assert single_look["M"] == looks["M"]
    assert len({look[0] for look in looks.values()}) == 3


def test_unlabelled_model_has_rank_of_summary() -> None:
    log_p = np.random.default_rng(0).normal(size=(30, 4))
    rows = []
    for member, values in enumerate(log_p):
        rows.append(
            {"canary": None, "label": None, "seed": 0, "model": "given", "member": member, "log_p": values.tolist()}
        )
    (result,) = read_models(pa.Table.from_pylist(rows, FAMILY))
    assert rank_p_value(population.label_directed_scores(log_p[None])) == result.p_value
    assert population.standardise(log_p)[:, population.favoured_label(log_p[None])].tolist() == result.scores.tolist()


def test_published_table_of_sweep_is_one_figure(golden: Golden, store: Store) -> None:
    cells = []
    for index, (dropout, published) in enumerate(((False, 0.0013), (True, 0.38))):
        row = {"metric": "M where positive", "setting": "{}", "estimate": 2 * published, "low": -0.1, "high": 1.0}
        summary = pa.Table.from_pylist(
            [dict.fromkeys(SUMMARY.names) | row | {"n": 30, "published": published}], SUMMARY
        )
        cells.append(made.run(store, f"unique_feature-{index}", {"summary": [summary]}, setting={"dropout": dropout}))
    result = named(made.sweep(store, "unique_feature-sweep-1", cells))
    golden(result["published"].alt)
    golden(result["published"].caption, "caption")


def test_long_setting_keeps_its_last_words(golden: Golden, store: Store) -> None:
    setting = json.dumps({"estimator": "a label-directed rank of the family", "models": 8})
    result = draw_figures(store, {"metric": "M", "setting": setting, "estimate": 1.0, "n": 3})
    golden(result["estimates"].alt)


def test_given_model_shows_probe_images_only(store: Store) -> None:
    table = made.family([("given", None, None)], members=3)
    result = gallery(
        made.run(store, "unique_feature-1", {"summary": [], "family": [table]}, made.embedded(question="panel")), False
    )
    assert result is not None
    assert len(result.pictures) == 9
    assert all("probe image" in picture.title for picture in result.pictures)


def test_exact_ranks_include_features_not_carried(golden: Golden, store: Store) -> None:
    result = draw_figures(store, exact_ranks=made.exact_ranks(20))["exact-ranks"]
    rate = proportion(16, 20)
    words = f"pair: 0.8 [{drawing.format_number(rate.low)}, {drawing.format_number(rate.high)}] at p ≤ 0.05"
    assert words in result.alt
    golden(result.alt)
    golden(result.caption, "found.caption")
    chosen_figure = draw_figures(sub_store(store, "chosen"), exact_ranks=made.exact_ranks(20, is_drawn=False))[
        "exact-ranks"
    ]
    assert "is not exact" in chosen_figure.caption


def test_strongest_pixels_are_shown_and_private(golden: Golden, store: Store) -> None:
    tables = {"summary": [], "canary_scores": [made.scores(3, 1, 1)], "exact_ranks": [made.exact_ranks(3)]}
    result = gallery(made.run(store, "unique_feature-1", tables, made.embedded(canaries=3)), False)
    assert result is not None
    strongest = [picture for picture in result.pictures if picture.group not in (CANARIES, PROBE_IMAGES)]
    titles = [picture.title for picture in strongest]
    assert len(titles) == 6
    golden(titles[1])
    pictures = [picture.png for picture in strongest]
    assert pictures[0] == pictures[1]
    private_config = made.embedded(canaries=3, feature=Words("JANE DOE", size=8))
    hidden = gallery(made.run(store, "unique_feature-2", tables, private_config), False)
    assert hidden is not None
    assert hidden.pictures == ()


def test_reconstructed_letters_are_shown_and_private(
    golden: Golden,
    store: Store,
) -> None:
    name = Words("IDA", size=8, top=4, left=3)
    block = np.s_[2:20, 1:26]
    shades = burn(np.zeros((1, 28, 28, 1), np.uint8), name)[0, ..., 0][block] / 255
    row = {"feature": "canary", "drawn": False, "p_value": 0.01, "among": 201, "exposure": 7.0, "hits_by_chance": 9.0}
    row |= {"height": 18, "width": 25, "ink": (shades > 0.5).ravel().tolist(), "slopes": shades.ravel().tolist()}
    row |= {
        "inked": int((shades > 0.5).sum()),
        "hits": int((shades > 0.5).sum()),
        "models": 1,
        "references": 4,
        "label": 1,
    }
    ranks = pa.Table.from_pylist([dict.fromkeys(REFERENCE_RANKS.names) | row], REFERENCE_RANKS)
    tables = {"summary": [], "family": [made.family([("given", None, None)], members=3)], "reference_ranks": [ranks]}
    config = made.embedded(question="panel", feature=name, **{"family.count": 20})
    result = gallery(made.run(store, "unique_feature-1", tables, config), True)
    assert result is not None
    feature_picture, read_picture, nearest = [picture for picture in result.pictures if picture.group == LETTERS]
    golden(feature_picture.title, "own.title")
    golden(read_picture.title, "read.title")
    assert feature_picture.png == read_picture.png != nearest.png
    golden(nearest.alt, "nearest.alt")
    hidden = gallery(made.run(store, "unique_feature-2", tables, config), False)
    assert hidden is not None
    assert hidden.pictures == ()


@pytest.mark.slow
def test_hundred_canaries_of_five_seeds_are_drawn(store: Store) -> None:
    tables = {"canary_scores": made.scores(100, 5, 3), "latents": made.latents(20), "course": made.course(5)}
    tables |= {"influence": made.influence(60000), "chosen": made.chosen(60000, 15)}
    tables |= {"family": made.family([("canary", canary, 3) for canary in range(30)])}
    run = made.run(store, "unique_feature-1", {"summary": [], **{name: [table] for name, table in tables.items()}})
    few = tables | {"canary_scores": made.scores(4, 2, 3), "family": made.family([("canary", 0, 3)])}
    figures(made.run(store, "unique_feature-2", {"summary": [], **{name: [table] for name, table in few.items()}}))
    result = figures(run)
    assert sum(len(figure.svg) for figure in result) < 1_500_000


def rung(store: Store, epsilon: float | None, effect: float, call_count: int) -> Run:
    """A cell of a sweep over epsilon: the effect of 12 canaries, and how many drawn features one model shows."""
    rows = [row("M_w effect", {"images": "probe"}, Estimate(effect, 0.8 * effect, 1.2 * effect, 12), "pair", 0.0)]
    ranked = []
    for index in range(12):
        ranked.append({"p_value": 1e-6 if index < call_count else 0.6, "among": 4457400})
    tables = {}
    if epsilon is None:
        like = made.exact_ranks(1).slice(0, 1).to_pylist()[0] | {"score": "references", "drawn": True}
        result = []
        for index, rank in enumerate(ranked):
            result.append(like | {"canary": index, "seed": index, **rank})
        tables["exact_ranks"] = [pa.Table.from_pylist(result, EXACT_RANKS)]
    else:
        rows += bounded_share_rows(ranked, Privacy(epsilon), False, (0.05, 0.01))
        rows += epsilon_rows(rank_bounds(ranked, 1e-5, (0.05, 0.01)), Spent(0.99 * epsilon, 12), 1e-5)
    tables["summary"] = [pa.Table.from_pylist(rows, SUMMARY)]
    privacy = LinkedTraining() if epsilon is None else DifferentialPrivacy(epsilon)
    config = made.embedded(drawn=True, patience=0, privacy=privacy)
    return made.run(store, f"unique_feature-{epsilon}", tables, config, {"privacy": epsilon})


def test_ladder_compares_measured_and_allowed_shares(golden: Golden, store: Store) -> None:
    cells = []
    for rung_values in ((None, 1.6, 12), (16.0, 0.04, 2), (2.0, 0.002, 1)):
        cells.append(rung(store, *rung_values))
    result = named(made.sweep(store, "unique_feature-sweep-1", cells))["ladder"]
    texts = labels.words(result)
    assert [text for text in texts if text in ("2", "16", "none")] == ["2", "16", "none"]
    assert set(texts) >= {
        "effect on M_w, probe images, nats, logarithmic",
        "largest share that (epsilon, delta) allows",
    }
    for level in (0.05, 0.01):
        assert f"share of features found by one model at p ≤ {level:g}" in texts
    golden(result.alt, "found.alt")
    golden(result.caption, "found.caption")


def test_epsilon_bounds_are_compared_with_accountant(golden: Golden, store: Store) -> None:
    cells = []
    for rung_values in ((None, 1.6, 12), (16.0, 0.04, 12), (2.0, 0.002, 0)):
        cells.append(rung(store, *rung_values))
    result = named(made.sweep(store, "unique_feature-sweep-1", cells))["epsilon-bounds"]
    golden(result.alt)
    assert set(labels.words(result)) >= {"accountant", "many runs", "many runs, Gaussian"}
    golden(result.caption, "found.caption")
    assert "epsilon-bounds" not in named(made.sweep(store, "unique_feature-sweep-2", [cells[0]]))


def test_cells_with_other_differences_are_no_ladder(golden: Golden, store: Store) -> None:
    cells = [rung(store, 16.0, 0.04, 2), rung(store, None, 1.6, 12)]
    empty = made.run(store, "unique_feature-empty", {"summary": []}, made.embedded())
    result = named(made.sweep(store, "unique_feature-sweep-1", [*cells, empty]))["ladder"]
    golden(result.caption)
    another = made.run(store, "unique_feature-other", {"summary": [cells[0].table("summary")]}, cells[0].config)
    assert "ladder" not in named(made.sweep(store, "unique_feature-sweep-2", [*cells, another]))
