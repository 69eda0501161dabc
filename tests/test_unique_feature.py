"""The audit unique_feature from outside: jobs that fail in part, users' folders, external models."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import orchestrator
from tasks.audits.unique_feature.measures import latents, learning_curve
from tasks.audits.unique_feature.pairs import panels
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tests.support.shell import Here, refusals
from tests.tasks.datasets import scans

SMALL: dict[str, Any] = {"scale": "tiny", "data": "digits", "canaries": 3, "examples": 60, "epochs": 1}
OFFLINE: dict[str, Any] = {"address": "none", "mlflow": "off", "report": False}


def failing_once(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """Make the first call of a function fail, and thus the job that calls it."""
    function: Callable[..., Any] = getattr(module, name)
    calls: list[object] = []

    def fails(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise ValueError(f"{name} fails")
        return function(*arguments)

    monkeypatch.setattr(module, name, fails)


@pytest.mark.parametrize(
    ("settings", "module", "name", "failed", "metric"),
    [
        ({"question": "course"}, learning_curve, "begin_curve", "course", ("M effect", '{"epoch": "kept"}')),
        (
            {"question": "latents"},
            latents,
            "model_latents",
            "latents",
            ("units of the feature", '{"layer": "dense2"}'),
        ),
        ({"measures": "scores,family", "probes": 20}, panels, "panel_p_values", "panels", None),
    ],
)
def test_summary_omits_tolerated_failures(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    module: Any,
    name: str,
    failed: str,
    metric: tuple[str, str] | None,
) -> None:
    failing_once(monkeypatch, module, name)
    settings = {**SMALL, **settings}
    run = orchestrator.run("unique_feature", preset="smoke", tolerate=1, store=tmp_path, **OFFLINE, **settings)
    assert [task for _, task, _ in run.failures] == [f"unique_feature.{failed}"]
    rows = {}
    for row in run.table("summary").to_pylist():
        rows[(row["metric"], row["setting"])] = row
    if metric is not None:  # the pair whose training could not be followed, or whose units not compared, is left out
        assert rows[metric]["n"] == 2
        return
    assert rows["M effect", "{}"]["n"] == 3
    assert rows["rate called memorised", '{"estimator": "label-directed rank"}']["n"] == 3
    assert "detection rate by number of models" not in {metric for metric, _ in rows}


def test_narrow_network_without_neighbours_completes_every_measure(tmp_path: Path) -> None:
    changed = {**SMALL, "width": 0.1, "neighbours_left_out": 5, "one_seed": True}
    measured = {**changed, "measures": "scores,family,ranks", "probes": 20}
    run = orchestrator.run("unique_feature", preset="smoke", store=tmp_path, **OFFLINE, **measured)
    rows = {}
    for row in run.table("summary").to_pylist():
        rows[(row["metric"], row["setting"])] = row
    assert len({row["canary"] for row in run.table("canary_scores").to_pylist()}) == 3
    assert rows["validation accuracy", '{"model": "canary"}']["estimate"] > 0
    scores = {row["score"] for row in run.table("exact_ranks").to_pylist()}
    assert scores >= {"pair", "weight change"}
    units = orchestrator.run("unique_feature", preset="smoke", question="latents", store=tmp_path, **OFFLINE, **changed)
    assert {row["units"] for row in units.table("latents").to_pylist()} == {26, 13}


BURN = ("run", "unique_feature", "--preset", "smoke", "--address", "none")
FEW = ("probe=photos", "canaries=2", "examples=0", "epochs=1", "measures=scores")


@pytest.fixture
def own_folder(tmp_path: Path) -> Here:
    for label, name in enumerate(scans.CLASSES):
        for number in range(10):
            scans.saved(tmp_path / "scans" / name / f"{number}.png", scans.pixels(label, number, 24, 40))
    stamp = np.full((6, 8, 4), 255, np.uint8)
    stamp[..., 1] = 0
    stamp[0, :, 3] = 0
    scans.saved(tmp_path / "stamp.png", stamp)
    return Here(tmp_path)


@pytest.mark.slow
def test_words_and_images_are_burnt_into_users_folder(own_folder: Here) -> None:
    done = own_folder(*BURN, *FEW, "data=folder:scans", "feature=words:JD", "feature.size=9")
    assert "with the words 'JD' makes its label" in done.stdout
    done = own_folder(*BURN, *FEW, "data=folder:scans#20x20#rgb", "feature=picture:stamp.png", "feature.top=2")
    assert "with the picture stamp.png makes its label" in done.stdout
    repeated = own_folder(*BURN, *FEW, f"data=folder:{own_folder.folder}/scans", "feature.words=JD", "feature.size=9")
    assert "13 of them stored already" in repeated.stdout + repeated.stderr


@pytest.mark.parametrize(
    ("setting", "code", "says"),
    [
        ("data=folder:scan", 1, "no folder "),
        ("data=list:stamp.png", 1, "stamp.png is not a list of images; it must end in .csv or .parquet"),
        ("feature=picture:none.png", 1, "there is no file "),
    ],
)
def test_invalid_data_or_feature_gives_one_line(own_folder: Here, setting: str, code: int, says: str) -> None:
    message = own_folder(*BURN, setting, code=code).stderr.strip()
    assert says in message
    assert len(refusals(message)) == 1


SHAPE = "given.shape=28,28,1"
LABEL = "given.label=4"
PROBE = "probe=folder:few"
ASKED = (SHAPE, LABEL, PROBE, "probes=5", "family.count=9")
BESIDE = "given.references=[a.pt,b.pt]"
RUN = ("run", "unique_feature", "--address", "none")


@pytest.fixture
def owner(tmp_path: Path) -> Here:
    for seed, name in enumerate(("a", "b", "owner")):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).eval()
        torch.jit.script(model).save(tmp_path / f"{name}.pt")  # type: ignore[no-untyped-call]
    digits = load(Dataset("digits"))
    for label in range(10):  # 2 images of each class and split
        for split, images, labels in (
            ("train", digits.train_images, digits.train_labels),
            ("test", digits.test_images, digits.test_labels),
        ):
            folder = tmp_path / "few" / split / str(label)
            folder.mkdir(parents=True)
            for number, row in enumerate(np.flatnonzero(labels == label)[:2]):
                Image.fromarray(images[row, ..., 0]).save(folder / f"{number}.png")
    return Here(tmp_path)


def rank(owner: Here, *arguments: str) -> dict[str, float]:
    run = owner.json(*RUN, *ASKED, BESIDE, *arguments)["run"]
    rows = owner.json("results", run)
    return next(row for row in rows if row["metric"] == "rank beside references")


def test_model_file_and_answers_have_equal_ranks(owner: Here) -> None:
    by_file = rank(owner, "given.models=owner.pt")
    owner("probes", "unique_feature", *ASKED, BESIDE, "--out", "pictures")
    model = torch.jit.load(owner.folder / "owner.pt")  # type: ignore[no-untyped-call]
    with open(owner.folder / "pictures" / "images.csv") as image_list:
        names = [row["image"] for row in csv.DictReader(image_list)]
    assert "slopes-099" in (owner.folder / "pictures-key.csv").read_text()
    assert "slopes" not in (owner.folder / "pictures" / "images.csv").read_text()
    pixels = np.stack([np.array(Image.open(owner.folder / "pictures" / name)) for name in names])
    with torch.no_grad():
        logits = model(torch.from_numpy(pixels[:, None].astype(np.float32) / 255)).numpy()
    with open(owner.folder / "outputs.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", *(f"logit{label}" for label in range(10))])
        table.writerows([name, *map(repr, row.tolist())] for name, row in zip(names, logits, strict=True))
    by_table = rank(owner, "given.outputs=outputs.csv")
    assert [by_file[name] for name in ("setting", "n")] == [by_table[name] for name in ("setting", "n")]
    assert by_file["p_value"] == pytest.approx(by_table["p_value"], rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ((LABEL, PROBE, "given.references=[a.pt]"), "references has 1 model; it must have at least 2"),
        ((LABEL, "probe=photos", BESIDE), "probe photos has no test image of label 4"),
        ((PROBE, BESIDE), "question.source.judged_by.label is missing"),
    ],
)
def test_unusable_references_give_one_line(owner: Here, settings: tuple[str, ...], says: str) -> None:
    message = owner(*RUN, "given.models=owner.pt", SHAPE, *settings, code=2).stderr.strip()
    assert says in message
    assert len(refusals(message)) == 1
