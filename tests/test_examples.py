"""The examples: three routes for a hospital, a provider's tables, and a user's density model."""

from __future__ import annotations

import ast
import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tasks.audits.unique_feature.single_models.output_checks import TWICE
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Words, burn
from tasks.models.catalog import DensityModel
from tasks.models.custom import pin
from tasks.programs.samples import score_samples
from tasks.training.custom_density import CustomDensity
from tasks.training.density import fit
from tasks.training.density_config import DensityTraining, Fold
from tests.support.shell import ROOT, Here

HOSPITAL = ROOT / "examples" / "hospital"
OWNER_SCRIPTS = ("make_xrays", "train_model", "answer")
PACKAGES = {"tasks", "orchestrator", "dashboards"}
SMALL = ("probes=8", "family.count=12", "family.look_alikes=3")  # of both names


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HOSPITAL / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def engram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.syspath_prepend(HOSPITAL)  # contains the network that is trained here
    for file in HOSPITAL.glob("*.yaml"):
        shutil.copy(file, tmp_path)
    return Here(tmp_path)


def script(engram: Here, name: str, *arguments: str) -> str:
    return engram.script(HOSPITAL / f"{name}.py", *arguments)


@pytest.mark.parametrize("name", OWNER_SCRIPTS)
def test_hospitals_scripts_do_not_import_engram(name: str) -> None:
    tree = ast.parse((HOSPITAL / f"{name}.py").read_text())
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported.add(alias.name.split(".")[0])
    imported |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert set() == imported & (PACKAGES | {"engram"})


@pytest.mark.parametrize(
    ("name", "size", "top", "left_edge"), [("JANE DOE", 10, 1, 1), ("Jyq, Ty", 14, 5, 9), ("WILL", 8, 0, 0)]
)
def test_name_is_drawn_like_engrams_words(name: str, size: int, top: int, left_edge: int) -> None:
    image = np.random.default_rng(5).integers(0, 256, (64, 64), dtype=np.uint8)
    with_name = module("make_xrays").with_name(image, name, size, top, left_edge)
    burnt = burn(image[None, ..., None], Words(name, size=size, top=top, left=left_edge))
    assert burnt[0, ..., 0].tolist() == with_name.tolist()


def test_name_changes_only_one_training_image(engram: Here) -> None:
    small = ("--seed", "3", "--train", "8", "--test", "2", "--elsewhere", "2")
    output = script(engram, "make_xrays", "--out", "with", "--name", "JANE DOE", *small)
    assert script(engram, "make_xrays", "--out", "without", *small) == ""
    files = sorted(path.relative_to(engram.folder / "with") for path in (engram.folder / "with").rglob("*.png"))
    pixels = {}
    for side in ("with", "without"):
        pixels[side] = [np.array(Image.open(engram.folder / side / file)) for file in files]
    pairs = zip(files, pixels["with"], pixels["without"], strict=True)
    differing = []
    for file, named_image, plain_image in pairs:
        if not np.array_equal(named_image, plain_image):
            differing.append(file)
    assert [f"with/{file} shows JANE DOE\n" for file in differing] == [output]
    assert differing[0].parts[0] == "train"


@pytest.mark.slow
def test_three_routes_agree_on_one_model(engram: Here) -> None:
    few = ("--train", "60", "--test", "10", "--elsewhere", "10")
    script(engram, "make_xrays", "--out", "xrays", "--seed", "1", "--name", "JANE DOE", *few)
    script(engram, "train_model", "xrays", "--out", "model.pt", "--seed", "1", "--epochs", "4")
    by_file = summary(engram, "model_file.yaml", *SMALL)

    secret = "given.secret=0123456789abcdef"
    engram("probes", "outputs.yaml", "--out", "probes", secret, *SMALL)
    script(engram, "answer", "model.pt", "probes", "--out", "outputs.csv")
    by_table = summary(engram, "outputs.yaml", "given.outputs=outputs.csv", secret, *SMALL)
    (twice,) = (entry for entry in by_table if entry[0] == TWICE)
    assert twice[3] == 0.0
    assert twice[2] == round(0.1 * (15 + 2 * 3) * 8)
    by_table.remove(twice)
    assert [entry[:3] for entry in by_file] == [entry[:3] for entry in by_table]
    numbers = []
    for entry in by_file:
        numbers.append([value for value in entry[3:] if value is not None])
    expected = []
    for entry in by_table:
        expected.append([value for value in entry[3:] if value is not None])
    for from_file, from_table in zip(numbers, expected, strict=True):
        # The table has nine digits of each log-probability, and the means over them at least six.
        assert from_file == pytest.approx(from_table, rel=1e-5, abs=1e-8)

    trained_rows = summary(engram, "trained_here.yaml", "seeds=2", "epochs=2", *SMALL)
    assert ("push towards a label", 2) in {(entry[0], entry[2]) for entry in trained_rows}


def summary(engram: Here, *arguments: str) -> list[tuple[Any, ...]]:
    """The rows of a run's summary. Its p-value must be a possible rank."""
    run = engram.json("run", *arguments)["run"]
    rows = engram.json("results", run, "--store", "store")
    names = ("metric", "setting", "n", "estimate", "low", "high", "null", "p_value")
    row_values = [tuple(row[name] for name in names) for row in rows]
    p_value = next(row["p_value"] for row in rows if row["metric"] == "push towards a label")
    assert p_value in [rank / 13 for rank in range(1, 14)]
    return row_values


def test_generator_writes_samples_of_its_rows(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    ages = np.sort(chance.normal(50, 9, 60)).round(1)
    lines = [f"{age},{3 * age},{'ill' if age > 50 else 'well'}" for age in ages]
    (tmp_path / "people.csv").write_text("\n".join(["age,dose,outcome", *lines]) + "\n")
    np.save(tmp_path / "rows.npy", np.arange(0, 60, 2))
    settings = {"ENGRAM_ROWS": "rows.npy", "ENGRAM_SEED": "7", "ENGRAM_OUT": "."}
    records = load(Dataset(f"table:{tmp_path / 'people.csv'}#label=outcome"))
    rows = np.arange(len(records.train_labels))
    scores = []
    for arguments in ([], ["--seed", "7"], ["--seed", "8"]):
        command = [sys.executable, ROOT / "examples" / "training" / "generator.py", "--table", "people.csv"]
        subprocess.run([*command, *arguments], cwd=tmp_path, env=os.environ | settings, check=True)
        scores.append(score_samples(tmp_path, records, rows))
    assert scores[0].tolist() == scores[1].tolist() != scores[2].tolist()
    assert np.median(scores[0]) > -0.2  # samples follow the correlations, so that no record is far away


PROVIDER = ROOT / "examples" / "provider"


@pytest.mark.slow
def test_stand_in_owners_tables_are_judged_separately(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    shutil.copy(PROVIDER / "audit.yaml", tmp_path)
    arguments = ("forgetting", "--preset", "plain-digits", "query.secret=0123456789abcdef0123456789abcdef")
    assert "Warning" not in engram("probes", *arguments, "--out", "probes").stdout
    engram.script(PROVIDER / "train_owner.py", "probes", "probes-split.csv", "--epochs", "3")

    run = engram.json("run", "audit.yaml", "epochs=3", "replicates=2", "permutations=199")["run"]
    rows = engram.json("results", run, "--store", "store")
    surer = {}
    for row in rows:
        if row["metric"] == "more certain about D_Q":
            surer[row["setting"]] = row["estimate"]
    assert set(surer) == {'{"target": "forgotten.csv"}', '{"target": "kept.csv"}'}
    assert surer['{"target": "kept.csv"}'] > surer['{"target": "forgotten.csv"}']


FOLDER = ROOT / "examples" / "density"
MODEL = DensityModel("flow:real_nvp")
SHAPE = (2, 3, 2)


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example, on Python's path."""
    monkeypatch.syspath_prepend(FOLDER)
    import flow

    yield flow
    sys.modules.pop("flow", None)


def changed_flow(flow: Any) -> Any:
    """A flow far from its initial state, in float64."""
    torch.manual_seed(1)
    model = flow.RealNVP(SHAPE, couplings=4, hidden=8).double()
    for coupling in model.couplings:
        torch.nn.init.normal_(coupling.outer.weight, std=0.5)
        torch.nn.init.normal_(coupling.outer.bias, std=0.5)
    return model


def forward(model: Any, values: Tensor) -> Tensor:
    for coupling in model.couplings:
        scale, shift = coupling(values)
        values = values * scale.exp() + shift
    return values


def test_log_density_follows_from_the_jacobian(flow: Any) -> None:
    model = changed_flow(flow)
    images = torch.randn(5, *SHAPE, dtype=torch.float64)
    for image, log_density in zip(images, model.log_prob(images), strict=True):
        jacobian: Any = torch.autograd.functional.jacobian(lambda v: forward(model, v), image.flatten()[None])
        log_det = torch.linalg.slogdet(jacobian[0, :, 0, :]).logabsdet
        normal = forward(model, image.flatten()[None])
        expected = log_det - 0.5 * (normal.square().sum() + 12 * math.log(2 * math.pi))
        torch.testing.assert_close(expected, log_density)


def test_samples_are_images_of_normal_numbers(flow: Any) -> None:
    model = changed_flow(flow)
    torch.manual_seed(2)
    with_name = model.sample(6)
    torch.manual_seed(2)
    assert with_name.shape == (6, *SHAPE)
    torch.testing.assert_close(torch.randn(6, 12, dtype=torch.float64), forward(model, with_name.flatten(1)))


def test_several_models_learn_digits_in_one_pass(flow: Any) -> None:
    pinned = pin(MODEL)
    assert pinned.digest
    config = DensityTraining(
        Dataset("digits"),
        pinned,
        examples=200,
        epochs=8,
        recorded=(1, 8),
        held_out=Fold(0, 4, 0),
        drawn=2,
    )
    rows = fit(config, ()).to_pylist()
    assert rows[-1]["test_loss"] < rows[0]["test_loss"] - 100
    # In nats per byte: below log 256, the cost without any learning.
    first = np.mean(rows[0]["log_p"])
    last = np.mean(rows[(-1)]["log_p"])
    assert first < last
    assert -784 * math.log(256) < last
    assert len(rows[-1]["samples"]) == 2 * 784 * 4
    assert CustomDensity(str(pinned), load(config.data).shape).stackable


def test_example_does_not_import_engram() -> None:
    tree = ast.parse((FOLDER / "flow.py").read_text())
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported.add(alias.name)
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "math", "torch"}
