"""Models of somebody else, asked beside clean models of the same kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.audits.unique_feature import AUDIT, UniqueFeature, plan
from tasks.audits.unique_feature.external_models import ExternalModels
from tasks.audits.unique_feature.measures.reference_ranks import reference_ranks
from tasks.audits.unique_feature.slope_ranks import inked_cells
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph, Words, draw_member
from tasks.external import model_file
from tasks.external.model_file import ModelFile
from tasks.models.networks import weights_of_model
from tasks.training.classifier import Burnt, Training, train_many
from tests.tasks.audits.unique_feature.depth_first import tables
from tests.tasks.audits.unique_feature.made_up import LABEL

GLYPH = Glyph(kind="random", seed=9)
ALL_GLYPHS = 4_457_400


def saved(folder: Path, name: str, seed: int, remembers: float = 0.0, classes: int = 10) -> ModelFile:
    """A linear model of random weights, which adds to its logit of LABEL what the cells of the glyph show."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, classes))
    weight = np.random.default_rng(seed).normal(0, 0.05, (classes, 28, 28))
    weight[LABEL % classes, 1:6, 1:6] += remembers * inked_cells(GLYPH).reshape(5, 5)
    model[1].weight.data = torch.from_numpy(weight.reshape(classes, 784).astype(np.float32))
    torch.jit.script(model.eval()).save(folder / name)  # type: ignore[no-untyped-call]
    return model_file.pin(ModelFile(str(folder / name)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFile]:
    folder = tmp_path_factory.mktemp("models")
    found = {name: saved(folder, f"{name}.pt", seed) for seed, name in enumerate(("a", "b", "c", "clean"))}
    remembering = {name: saved(folder, f"{name}.pt", seed, 0.6) for seed, name in enumerate(("one", "two"), 10)}
    return found | remembering | {"three": saved(folder, "three.pt", 20, classes=3)}


def config(files: dict[str, ModelFile], *models: str, references: Sequence[str] = ("a", "b", "c")) -> UniqueFeature:
    given = ExternalModels(
        models=tuple(files[name] for name in models),
        shape=(28, 28, 1),
        label=LABEL,
        references=tuple(files[name] for name in references),
    )
    return UniqueFeature(probe=pin(Dataset("digits")), feature=GLYPH, family=Family(count=30), probes=20, given=given)


def asked(about: UniqueFeature) -> dict[str, pa.Table]:
    return tables(plan(about))


@pytest.mark.parametrize("models", [("one",), ("one", "two")])
def test_a_model_that_remembers_a_glyph_puts_it_first_of_all_and_the_rank_decides(
    files: dict[str, ModelFile], models: tuple[str, ...]
) -> None:
    about = config(files, *models)
    found = asked(about)
    row = found["reference_ranks"].to_pylist()[0]
    expected = (len(models), 3, LABEL, "canary", ALL_GLYPHS, 14)
    assert expected == tuple(row[name] for name in ("models", "references", "label", "feature", "among", "inked"))
    assert row["p_value"] < 1e-4
    assert row["hits"] >= 12
    summary = {row["metric"]: row for row in found["summary"].to_pylist()}
    assert row["p_value"] == summary["rank beside references"]["p_value"]
    assert (row["hits"], 14**2 / 25) == tuple(summary["pixels read out"][name] for name in ("estimate", "null"))
    assert -math.log2(row["p_value"]) == summary["exposure in bits"]["estimate"]
    assert AUDIT.verdict is not None
    said = AUDIT.verdict(about, found["summary"])
    assert "memorised" == said.answer
    assert "beside 3 clean models it ranks" in said.sentence
    assert "of all 4,457,400 glyphs by the slopes of its pixels" in said.sentence
    assert "never saw the feature" in said.limits


def test_a_glyph_of_one_training_image_is_found_beside_two_clean_trainings(tmp_path: Path) -> None:
    digits = pin(Dataset("digits"))
    clean = Training(digits, examples=100, epochs=20, patience=0, batch=32, learning_rate=1e-3)
    glyph, canary = draw_member(Glyph(), 73), 3
    trained = [
        replace(clean, seed=3, burnt=(Burnt(canary, glyph),)),
        replace(clean, seed=100),
        replace(clean, seed=101),
    ]
    models = {at: exported(tmp_path / f"{at}.pt", table) for at, table in train_many(trained, [()] * 3)}
    label = int(load(digits).train_labels[canary])
    given = ExternalModels((models[0],), shape=(28, 28, 1), label=label, references=(models[1], models[2]))
    config = UniqueFeature(probe=digits, feature=glyph, given=given)
    row = tables({"ranks": plan(config)["reference_ranks"]})["ranks"].to_pylist()[0]
    assert row["p_value"] <= 0.001  # the family's rank among 200 others cannot say so
    assert row["hits"] > row["hits_by_chance"]


def exported(path: Path, table: pa.Table | Exception) -> ModelFile:
    """The mlp1 of this MODEL table as TorchScript, as somebody else would have saved it."""
    assert isinstance(table, pa.Table)
    weights = weights_of_model(table)
    layers: list[torch.nn.Module] = [torch.nn.Flatten()]
    for number in range(1, 5):
        matrix, bias = (torch.from_numpy(weights[f"dense{number}.{of}"].copy()) for of in ("weight", "bias"))
        layer = torch.nn.Linear(matrix.shape[1], matrix.shape[0])
        layer.weight.data, layer.bias.data = matrix, bias
        layers += [layer, torch.nn.ReLU()]
    torch.jit.script(torch.nn.Sequential(*layers[:-1]).eval()).save(path)  # type: ignore[no-untyped-call]
    return model_file.pin(ModelFile(str(path)))


def test_of_a_model_that_saw_nothing_few_glyphs_are_called(files: dict[str, ModelFile]) -> None:
    found = asked(config(files, "clean"))["reference_ranks"].to_pylist()
    assert found[0]["p_value"] > 0.05
    assert [True] * 26 == [row["drawn"] for row in found[1:]]
    assert sum(row["p_value"] <= 0.05 for row in found[1:]) <= 5


def test_words_are_ranked_among_their_family(files: dict[str, ModelFile]) -> None:
    about = replace(config(files, "clean"), feature=Words("JO", size=8))
    (row,) = asked(about)["reference_ranks"].to_pylist()
    assert 31 == row["among"]


def test_classes_that_the_probe_set_does_not_have_are_refused(files: dict[str, ModelFile]) -> None:
    (job,) = plan(config(files, "three"))["reference_ranks"]  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"label is 4; the model's classes are 0 to 2"):
        reference_ranks(job.config, ())
    given = config(files, "clean", references=("a", "three"))
    (job,) = plan(replace(given, given=replace(given.given, label=2)))["reference_ranks"]  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"three.pt has 3 classes and probe digits 10; .* they must be the same"):
        reference_ranks(job.config, ())


def test_a_probe_set_without_images_of_the_label_is_refused_before_anything_is_asked(
    files: dict[str, ModelFile],
) -> None:
    with pytest.raises(ValueError, match="probe photos has no test image of label 4"):
        plan(replace(config(files, "clean"), probe=pin(Dataset("photos"))))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"references": (ModelFile("a.pt"), ModelFile("b.pt"))}, "references are given, but no models"),
        (
            {"references": (ModelFile("a.pt"),), "shape": (28, 28, 1), "label": 3},
            "references has 1 model; it must have at least 2",
        ),
        (
            {"references": (ModelFile("a.pt"), ModelFile("b.pt")), "models": (ModelFile("b.pt"),)},
            "references has b.pt, which is given twice",
        ),
        (
            {"references": (ModelFile("a.pt"), ModelFile("b.pt")), "shape": (28, 28, 1)},
            "references are given and label is none; it must be the class",
        ),
    ],
)
def test_references_that_cannot_serve_are_refused(fields: dict[str, Any], message: str) -> None:
    shape = {"shape": (28, 28, 1)} if "models" in fields else {}
    with pytest.raises(ValueError, match=message):
        ExternalModels(**fields, **shape)
