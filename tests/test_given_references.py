"""From the command line: a model of somebody else beside clean models of its kind, as a file and by its outputs."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tests.support.shell import Here

SHAPE, LABEL, PROBE = "given.shape=28,28,1", "given.label=4", "probe=folder:few"
ASKED = (SHAPE, LABEL, PROBE, "probes=5", "family.count=9")
BESIDE = "given.references=[a.pt,b.pt]"
RUN = ("run", "unique_feature", "--address", "none")


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    for seed, name in enumerate(("a", "b", "owner")):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).eval()
        torch.jit.script(model).save(tmp_path / f"{name}.pt")  # type: ignore[no-untyped-call]
    digits = load(Dataset("digits"))
    for label in range(10):  # 2 pictures of each class and split
        for split, images, labels in (
            ("train", digits.train_images, digits.train_labels),
            ("test", digits.test_images, digits.test_labels),
        ):
            folder = tmp_path / "few" / split / str(label)
            folder.mkdir(parents=True)
            for number, row in enumerate(np.flatnonzero(labels == label)[:2]):
                Image.fromarray(images[row, ..., 0]).save(folder / f"{number}.png")
    return Here(tmp_path)


def rank(engram: Here, *arguments: str) -> dict[str, float]:
    run = engram.json(*RUN, *ASKED, BESIDE, *arguments)["run"]
    rows = engram.json("results", run)
    return next(row for row in rows if row["metric"] == "rank beside references")


def test_a_model_file_and_its_owners_answers_have_one_rank_beside_references(engram: Here) -> None:
    by_file = rank(engram, "given.models=owner.pt")
    engram("probes", "unique_feature", *ASKED, BESIDE, "--out", "pictures")
    model = torch.jit.load(engram.folder / "owner.pt")  # type: ignore[no-untyped-call]
    with open(engram.folder / "pictures" / "images.csv") as listed:
        names = [row["image"] for row in csv.DictReader(listed)]
    assert "slopes-099" in (engram.folder / "pictures-key.csv").read_text()
    assert "slopes" not in (engram.folder / "pictures" / "images.csv").read_text()
    pixels = np.stack([np.array(Image.open(engram.folder / "pictures" / name)) for name in names])
    with torch.no_grad():
        logits = model(torch.from_numpy(pixels[:, None].astype(np.float32) / 255)).numpy()
    with open(engram.folder / "outputs.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", *(f"logit{label}" for label in range(10))])
        table.writerows([name, *map(repr, row.tolist())] for name, row in zip(names, logits, strict=True))
    by_table = rank(engram, "given.outputs=outputs.csv")
    assert [by_file[name] for name in ("setting", "n")] == [by_table[name] for name in ("setting", "n")]
    assert by_file["p_value"] == pytest.approx(by_table["p_value"], rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ((LABEL, PROBE, "given.references=[a.pt]"), "references has 1 model; it must have at least 2"),
        ((LABEL, "probe=photos", BESIDE), "probe photos has no test image of label 4"),
        ((PROBE, BESIDE), "references are given and label is none"),
    ],
)
def test_references_that_cannot_serve_are_one_line(engram: Here, settings: tuple[str, ...], says: str) -> None:
    said = engram(*RUN, "given.models=owner.pt", SHAPE, *settings, code=2).stderr.strip()
    assert says in said
    assert 1 == len(said.splitlines())
