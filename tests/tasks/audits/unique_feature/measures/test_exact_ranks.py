from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.audits.unique_feature import AUDIT, PRESETS
from tasks.audits.unique_feature import plan as plan_audit
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.design import load_design
from tasks.audits.unique_feature.given_models import Given, ModelFiles, ReferenceRank
from tasks.audits.unique_feature.measures.exact_ranks import (
    EXACT_RANKS,
    ExactRanks,
    exact_ranks,
    match_spread,
    plan,
    rank_jobs,
    reference_jobs,
    reference_ranks,
    rows,
)
from tasks.audits.unique_feature.population import Relatives, inked_cells
from tasks.audits.unique_feature.single_models.sentences import UNSEEN_BY_REFERENCES
from tasks.audits.unique_feature.trainings import trainings
from tasks.contract.measure import Tables
from tasks.contract.summaries import Row
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily, Feature, Glyph, Words, draw_member
from tasks.external import model_file
from tasks.external.model_file import ModelFile
from tasks.models.networks import weights_of_model
from tasks.training.classifier import Burnt, Training, train_many
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.depth_first import tables
from tests.tasks.audits.unique_feature.made_up import LABEL, letter_model

DIGITS = pin(Dataset("digits"))
PHOTOS = pin(Dataset("photos"))
ALL_GLYPHS = 4_457_400


def rank_config(feature: Feature = Glyph(), drawn: bool = False, references: int = 0, **changes: object) -> ExactRanks:
    canary = int(np.flatnonzero(load(DIGITS).train_labels == LABEL)[0])
    kind = replace(AskedFamily(count=30), **changes)  # type: ignore[arg-type]
    return ExactRanks(DIGITS, canary, 0, Relatives(PHOTOS, "test", 20, feature, kind, seed=3), drawn, references)


@pytest.fixture(scope="module")
def letter() -> pa.Table:
    return exact_ranks(rank_config(references=1), [letter_model(3.0), letter_model(1.0), letter_model(0.0)])


def rows_of(table: pa.Table, score: str, feature: str) -> list[dict[str, object]]:
    result = []
    for row in table.to_pylist():
        if (row["score"], row["feature"]) == (score, feature):
            result.append(row)
    return result


@pytest.mark.parametrize("score", ["pair", "references"])
def test_learnt_letter_is_first_of_all_glyphs(letter: pa.Table, score: str) -> None:
    (row,) = rows_of(letter, score, "canary")
    assert tuple(row[n] for n in ("p_value", "among", "drawn", "inked")) == (1 / ALL_GLYPHS, ALL_GLYPHS, False, 14)
    assert math.log2(ALL_GLYPHS) == pytest.approx(row["exposure"])
    assert row["hits"] == 14
    assert row["hits_by_chance"] == 14**2 / 25
    assert inked_cells(Glyph()).tolist() == row["ink"]
    assert (1 if score == "references" else None) == row["references"]


def test_chosen_letter_is_compared_with_drawn_glyphs(letter: pa.Table) -> None:
    other_rows = rows_of(letter, "pair", "other")
    assert [row["drawn"] for row in other_rows] == [True] * 26
    assert all(row["p_value"] > 1 / ALL_GLYPHS for row in other_rows)  # type: ignore[operator]
    assert {row["hits"] for row in other_rows} == {None}


def test_drawn_glyph_is_compared_with_letters() -> None:
    glyph = Glyph(kind="random", seed=4)
    table = exact_ranks(rank_config(glyph, drawn=True), [letter_model(3.0), letter_model(1.0)])
    (row,) = rows_of(table, "pair", "canary")
    assert row["drawn"]
    other_rows = rows_of(table, "pair", "other")
    assert [other_row["drawn"] for other_row in other_rows] == [False] * 26
    assert other_rows[0]["p_value"] == 1 / ALL_GLYPHS  # the letter A
    # ranked among glyphs with equal ink
    assert {other_row["inked"] for other_row in other_rows} >= {14, 9}


def test_drawn_glyph_affects_only_its_own_rank() -> None:
    models = [letter_model(3.0), letter_model(1.0)]
    first_table = exact_ranks(rank_config(Glyph(kind="random", seed=4), True), models)
    second_table = exact_ranks(rank_config(Glyph(kind="random", seed=5), True), models)
    assert rows_of(first_table, "pair", "canary")[0]["slopes"] == rows_of(second_table, "pair", "canary")[0]["slopes"]
    assert rows_of(first_table, "pair", "other") == rows_of(second_table, "pair", "other")


def test_letters_and_words_are_ranked_in_their_family() -> None:
    models = [letter_model(3.0), letter_model(1.0)]
    letters = rows_of(exact_ranks(rank_config(kind="letters", count=25), models), "pair", "canary")
    assert letters[0]["among"] == 26
    assert letters[0]["p_value"] == 1 / 26
    words = rows_of(exact_ranks(rank_config(Words("JO", size=8)), models), "pair", "canary")
    assert words[0]["among"] == 31
    assert rows_of(exact_ranks(rank_config(Words("JO", size=8)), models), "pair", "other") == []


def test_temperature_does_not_matter_for_one_model() -> None:
    draws = np.random.default_rng(0)
    own_scores = draws.normal(size=30)
    reference_scores = [draws.normal(size=30) for _ in range(3)]
    assert match_spread(own_scores, reference_scores) == pytest.approx(match_spread(own_scores / 2, reference_scores))
    assert np.mean([scores.std() for scores in reference_scores]) == pytest.approx(
        match_spread(own_scores, reference_scores).std()
    )
    assert match_spread(np.zeros(2), reference_scores).tolist() == [0.0, 0.0]


def test_equal_models_give_p_1() -> None:
    table = exact_ranks(rank_config(), [letter_model(3.0), letter_model(3.0)])
    assert {row["p_value"] for score in ("pair", "weight change") for row in rows_of(table, score, "canary")} == {1.0}


def test_references_are_twins_of_other_seeds() -> None:
    config = with_settings(PRESETS["smoke"], data=DIGITS, probe=PHOTOS, canaries=6, measures=("ranks",))
    planned_trainings = trainings(config)
    for pair in planned_trainings.pairs:
        references = reference_jobs(planned_trainings, pair)
        assert len(set(references)) == 4
        assert pair.twin not in references
    one_seed = trainings(with_settings(config, one_seed=True))
    assert {reference_jobs(one_seed, pair) for pair in one_seed.pairs} == {()}
    (job, *_) = rank_jobs(load_design(config), planned_trainings)
    assert 4 == job.config.references == len(job.inputs) - 2


def summary_of(ranks: Sequence[Row]) -> list[Row]:
    """The rows of the summary of these ranks."""
    return list(rows(Tables([pa.Table.from_pylist(ranks, EXACT_RANKS)]), None))


def test_summary_counts_detections_and_false_alarms() -> None:
    def rank(canary: int, feature: str, p_value: float, **columns: object) -> dict[str, object]:
        about = {"canary": canary, "seed": canary, "score": "pair", "feature": feature, "drawn": feature == "canary"}
        about |= {"among": ALL_GLYPHS}
        return (
            dict.fromkeys(EXACT_RANKS.names) | about | {"p_value": p_value, "exposure": -math.log2(p_value)} | columns
        )

    pixel_counts = {"hits": 12, "hits_by_chance": 7.84}
    table = [rank(0, "canary", 2**-10, **pixel_counts), rank(1, "canary", 0.5, **pixel_counts)]
    table += [rank(canary, "other", p) for canary in (0, 1) for p in (0.5, 0.5, 0.5, 0.01)]
    summary_by_name = {}
    for row in summary_of(table):
        summary_by_name[(row["metric"], row["setting"])] = row
    drawn = {"score": "pair", "drawn": True}
    setting_by_level = {}
    for level in (0.05, 0.001):
        setting_by_level[level] = json.dumps(drawn | {"level": level}, sort_keys=True)
    call_rate = summary_by_name["rate of exact p at most", setting_by_level[0.05]]
    assert tuple(call_rate[n] for n in ("estimate", "n", "null", "unit")) == (0.5, 2, 0.25, "pair of trainings")
    assert summary_by_name["rate of exact p at most", setting_by_level[0.001]]["estimate"] == 0.5
    alarms = summary_by_name[
        "false alarms of exact p",
        json.dumps(drawn | {"level": 0.05, "queries": 8, "guaranteed by the draw": False}, sort_keys=True),
    ]
    assert alarms["estimate"] == 0.25
    assert alarms["n"] == 2
    assert alarms["null"] == 0.05
    bits = summary_by_name["exposure in bits", json.dumps(drawn, sort_keys=True)]
    assert bits["estimate"] == 5.5
    assert bits["null"] == pytest.approx((3 - math.log2(0.01)) / 4)
    assert tuple(
        summary_by_name["pixels read out", json.dumps(drawn, sort_keys=True)][n] for n in ("estimate", "null")
    ) == (
        12,
        7.84,
    )


def test_unattainable_level_is_left_out() -> None:
    names = dict.fromkeys(EXACT_RANKS.names) | {"canary": 1, "seed": 1, "score": "pair", "feature": "canary"}
    summary_rows = summary_of([names | {"drawn": True, "p_value": 1 / 201, "exposure": 7.65, "among": 201}])
    assert [json.loads(row["setting"])["level"] for row in summary_rows if "rate" in row["metric"]] == [0.05, 0.01]


def test_shared_seeds_have_rates_without_intervals() -> None:
    names = dict.fromkeys(EXACT_RANKS.names) | {"score": "pair", "feature": "canary", "drawn": True, "among": 201}
    names |= {"p_value": 1 / 201, "exposure": 7.65}
    for seeds, has_interval in (((1, 2), True), ((1, 1), False)):
        summary_rows = summary_of([names | {"canary": canary, "seed": seed} for canary, seed in enumerate(seeds)])
        assert {row["low"] is not None for row in summary_rows if "rate" in row["metric"]} == {has_interval}


def test_words_with_too_few_others_are_refused() -> None:
    words = Words("12")
    config = with_settings(PRESETS["smoke"], data=DIGITS, probe=PHOTOS, feature=words, measures=("scores", "ranks"))
    with pytest.raises(ValueError, match="count is 200; it must be at most"):
        plan(load_design(config), trainings(config))


GLYPH = Glyph(kind="random", seed=9)


def save_model(folder: Path, name: str, seed: int, remembers: float = 0.0, classes: int = 10) -> ModelFile:
    """A linear model with random weights that adds the cells of the glyph to its logit of LABEL."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, classes))
    weight = np.random.default_rng(seed).normal(0, 0.05, (classes, 28, 28))
    weight[LABEL % classes, 1:6, 1:6] += remembers * inked_cells(GLYPH).reshape(5, 5)
    model[1].weight.data = torch.from_numpy(weight.reshape(classes, 784).astype(np.float32))
    torch.jit.script(model.eval()).save(folder / name)  # type: ignore[no-untyped-call]
    return model_file.pin(ModelFile(str(folder / name)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFile]:
    folder = tmp_path_factory.mktemp("models")
    models = {}
    for seed, name in enumerate(("a", "b", "c", "clean")):
        models[name] = save_model(folder, f"{name}.pt", seed)
    remembering = {}
    for seed, name in enumerate(("one", "two"), 10):
        remembering[name] = save_model(folder, f"{name}.pt", seed, 0.6)
    return models | remembering | {"three": save_model(folder, "three.pt", 20, classes=3)}


def config(files: dict[str, ModelFile], *models: str, references: Sequence[str] = ("a", "b", "c")) -> UniqueFeature:
    judged_by = ReferenceRank(tuple(files[name] for name in references), LABEL)
    given_config = Given(
        shape=(28, 28, 1),
        source=ModelFiles(tuple(files[name] for name in models), judged_by),
        family=AskedFamily(count=30, look_alikes=30),
        probes=20,
    )
    return UniqueFeature(given_config, probe=pin(Dataset("digits")), feature=GLYPH)


def tables_of(about: UniqueFeature) -> dict[str, pa.Table]:
    return tables(plan_audit(about))


@pytest.mark.parametrize("models", [("one",), ("one", "two")])
def test_memorised_glyph_is_first_of_all(files: dict[str, ModelFile], models: tuple[str, ...]) -> None:
    about = config(files, *models)
    tables_by_name = tables_of(about)
    row = tables_by_name["reference_ranks"].to_pylist()[0]
    expected = (len(models), 3, LABEL, "canary", ALL_GLYPHS, 14)
    assert expected == tuple(row[name] for name in ("models", "references", "label", "feature", "among", "inked"))
    assert row["p_value"] < 1e-4
    assert row["hits"] >= 12
    summary = {row["metric"]: row for row in tables_by_name["summary"].to_pylist()}
    assert row["p_value"] == summary["rank beside references"]["p_value"]
    assert tuple(summary["pixels read out"][name] for name in ("estimate", "null")) == (row["hits"], 14**2 / 25)
    assert -math.log2(row["p_value"]) == summary["exposure in bits"]["estimate"]
    assert AUDIT.verdict is not None
    answer = AUDIT.verdict(about, tables_by_name["summary"])
    assert answer.answer == "memorised"
    assert "by its slopes, compared with 3 reference models, its place is" in answer.sentence
    assert "of all 4,457,400 glyphs" in answer.sentence
    assert UNSEEN_BY_REFERENCES in answer.conditions


def test_memorised_glyph_is_found_with_two_references(tmp_path: Path) -> None:
    digits = pin(Dataset("digits"))
    clean = Training(digits, examples=100, epochs=20, patience=0, batch=32, learning_rate=1e-3)
    glyph = draw_member(Glyph(), 73)
    canary = 3
    trainings_of_models = [
        replace(clean, seed=3, burnt=(Burnt(canary, glyph),)),
        replace(clean, seed=100),
        replace(clean, seed=101),
    ]
    models = {}
    for number, table in train_many(trainings_of_models, [()] * 3):
        models[number] = export_model(tmp_path / f"{number}.pt", table)
    label = int(load(digits).train_labels[canary])
    given_config = Given((28, 28, 1), ModelFiles((models[0],), ReferenceRank((models[1], models[2]), label)))
    config = UniqueFeature(given_config, probe=digits, feature=glyph)
    row = tables({"ranks": plan_audit(config)["reference_ranks"]})["ranks"].to_pylist()[0]
    assert row["p_value"] <= 0.001  # the rank among a family of 200 could not be so small
    assert row["hits"] > row["hits_by_chance"]


def export_model(path: Path, table: pa.Table | Exception) -> ModelFile:
    """The mlp1 of this MODEL table as TorchScript, as a third party would save it."""
    assert isinstance(table, pa.Table)
    weights = weights_of_model(table)
    layers: list[torch.nn.Module] = [torch.nn.Flatten()]
    for number in range(1, 5):
        matrix, bias = (torch.from_numpy(weights[f"dense{number}.{kind}"].copy()) for kind in ("weight", "bias"))
        layer = torch.nn.Linear(matrix.shape[1], matrix.shape[0])
        layer.weight.data = matrix
        layer.bias.data = bias
        layers += [layer, torch.nn.ReLU()]
    torch.jit.script(torch.nn.Sequential(*layers[:-1]).eval()).save(path)  # type: ignore[no-untyped-call]
    return model_file.pin(ModelFile(str(path)))


def test_clean_model_calls_few_glyphs(files: dict[str, ModelFile]) -> None:
    rank_table_rows = tables_of(config(files, "clean"))["reference_ranks"].to_pylist()
    assert rank_table_rows[0]["p_value"] > 0.05
    other_rows = [row for row in rank_table_rows if row["feature"] == "other"]
    assert [row["drawn"] for row in other_rows] == [True] * 26
    assert sum(row["p_value"] <= 0.05 for row in other_rows) <= 5
    assert [row["feature"] for row in rank_table_rows[27:]] == ["look-alike", "look-alike"]


def test_words_are_ranked_among_their_family(files: dict[str, ModelFile]) -> None:
    about = replace(config(files, "clean"), feature=Words("JO", size=8))
    row, *parts = tables_of(about)["reference_ranks"].to_pylist()
    assert [part_row["feature"] for part_row in parts] == ["look-alike", "look-alike"]
    assert [part_row["among"] for part_row in parts] == [26, 26]
    assert row["among"] == 31


def test_unsuitable_classes_are_refused(files: dict[str, ModelFile]) -> None:
    (job,) = plan_audit(config(files, "three"))["reference_ranks"]  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"label is 4; the model's classes are 0 to 2"):
        reference_ranks(job.config, ())
    mixed_config = config(files, "clean", references=("a", "three"))
    (job,) = plan_audit(with_settings(mixed_config, {"given.label": 2}))["reference_ranks"]  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"three.pt has 3 classes and probe digits 10; .* they must be equal"):
        reference_ranks(job.config, ())


def test_missing_probe_label_is_refused_while_planning(
    files: dict[str, ModelFile],
) -> None:
    with pytest.raises(ValueError, match="probe photos has no test image of label 4"):
        plan_audit(replace(config(files, "clean"), probe=pin(Dataset("photos"))))
