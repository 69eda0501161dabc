"""`engram audit` and `engram.audit`: one line from a model and two sets to a run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import engram as api
from orchestrator.inspection.garbage import find_garbage
from orchestrator.model_audit import ModelAndFolders, file_spec, record
from orchestrator.store import open_store
from tests.support.shell import Here

CLASSES = 3
SIDE = 28


class Pooling(torch.nn.Module):
    """Takes colour images of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, CLASSES, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images).mean(dim=(2, 3))


class Fixed(torch.nn.Module):
    """Takes grey images of 28 x 28 only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(SIDE * SIDE, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images.flatten(1))


def write_images(folder: Path, sizes: tuple[int, ...], seed: int, colours: int = 1) -> None:
    stream = np.random.default_rng(seed)
    for label in range(CLASSES):
        (folder / f"class {label}").mkdir(parents=True)
        for number in range(20):
            side = sizes[number % len(sizes)]
            pixels = stream.integers(0, 256, (side, side, colours), dtype=np.uint8).squeeze()
            Image.fromarray(pixels).save(folder / f"class {label}" / f"{number}.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    torch.jit.script(Fixed()).save(str(tmp_path / "fixed.pt"))
    torch.jit.script(Pooling()).save(str(tmp_path / "pooling.pt"))
    write_images(tmp_path / "mine", (SIDE,), 1)
    write_images(tmp_path / "others", (SIDE,), 2)
    write_images(tmp_path / "mixed", (20, 40), 3)
    return tmp_path


def test_file_and_two_folders_make_a_run(folder: Path, engram: Here) -> None:
    result = engram.json("audit", "fixed.pt", "mine", "others")
    assert result["audit"] == "membership"
    assert result["jobs"] == {"planned": 3, "stored": 3, "done": 3, "failed": 0}
    run = api.open(result["run"], folder / "engram-store")
    assert run.verdict is not None
    assert run.verdict.answer in ("undecided", "distinguishable", "not assessable")
    assert run.table("loss_scores").num_rows == 120


def test_answer_is_followed_by_stronger_evidence(folder: Path, engram: Here) -> None:
    printed = " ".join(engram("audit", "fixed.pt", "mine", "others", "--size", "28x28").stdout.split())
    assert "engram audit fixed.pt mine others --size 28x28 --network cnn1 --references 16 trains 16" in printed


@pytest.mark.parametrize(
    ("model", "members", "expected"),
    [
        ("fixed.pt", "mine", "folder:mine"),
        ("fixed.pt", "mixed", "folder:mixed#28x28#grey"),
        ("pooling.pt", "mine", "folder:mine#rgb"),
    ],
)
def test_size_and_colours_follow_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, model: str, members: str, expected: str
) -> None:
    monkeypatch.chdir(folder)
    spec = file_spec(ModelAndFolders(model, members, "others"), {})
    assert spec.set["question.source.members"] == expected


def test_references_are_trained_on_both_sets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    spec = file_spec(ModelAndFolders("fixed.pt", "mine", "others"), {"training.epochs": "3"}, 32, "mlp1")
    assert spec.set == {
        "question": "loss",
        "question.source": "file",
        "question.source.model": "fixed.pt",
        "question.source.members": "folder:mine",
        "question.source.non_members": "folder:others",
        "question.references": "32",
        "training.network": "mlp1",
        "training.epochs": "3",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "MODEL is missing; give a model file"),
        (("fixed.pt", "mine"), "OTHERS is missing"),
        (("fixed.pt", "mine", "elsewhere"), "others is 'elsewhere', which is not a folder, a list"),
        (("absent.pt", "mine", "others"), "absent.pt"),
        (("mine", "mine", "others"), "model is 'mine'; expected model.pt (TorchScript)"),
        (("fixed.pt", "mine", "others", "--size", "32x32"), "accepts 28x28; give the size that it was trained with"),
        (("pooling.pt", "mixed", "others"), "has images of several sizes, and model pooling.pt accepts 28x28, 32x32"),
        (("fixed.pt", "mine", "others", "--references", "64"), "give it as --network package.module:function"),
        (("fixed.pt", "mine", "others", "--network", "mlp1"), "--network is given without --references"),
        (("--example", "fixed.pt"), "--example takes neither files nor"),
        (("fixed.pt", "mine", "others", "epoch=3"), "epoch"),
    ],
)
def test_invalid_arguments_are_refused_before_a_run(
    folder: Path, engram: Here, arguments: tuple[str, ...], message: str
) -> None:
    result = engram.run("audit", *arguments)
    assert result.returncode in (1, 2)
    assert message in " ".join(result.stderr.split())
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (folder / "engram-store").exists()


def test_objects_in_memory_make_a_run_that_is_reused(folder: Path) -> None:
    def audit(**more: Any) -> Any:
        stream = np.random.default_rng(0)
        sets = [(stream.random((40, 1, SIDE, SIDE), np.float32), stream.integers(0, CLASSES, 40)) for _ in range(2)]
        return api.audit(Fixed(), *sets, store=folder / "store", mlflow="off", report=False, **more)

    torch.manual_seed(3)
    run = audit()
    torch.manual_seed(3)
    again = audit()
    assert again.run == run.run
    assert again.jobs["done"] == 0
    assert run.summary.num_rows == again.summary.num_rows
    assert [path.suffix for path in (folder / "store" / "recordings").iterdir()] == [".parquet"]
    with pytest.raises(api.SpecError, match="size is '28x28', but objects in memory are audited as they are"):
        audit(size="28x28")


def test_references_of_objects_in_memory_read_recorded_images(folder: Path) -> None:
    stream = np.random.default_rng(0)
    sets = [(stream.random((20, 1, SIDE, SIDE), np.float32), stream.integers(0, CLASSES, 20)) for _ in range(2)]
    options: dict[str, Any] = {"store": folder / "store", "mlflow": "off", "report": False, "address": "none"}
    run = api.audit(Fixed(), *sets, references=4, network="mlp1", epochs=1, **options)
    assert run.jobs == {"planned": 9, "stored": 9, "done": 9, "failed": 0}
    assert run.table("loss_calibrated").num_rows == 40
    with pytest.raises(api.SpecError, match="a model in memory does not say how to build an untrained one"):
        api.audit(Fixed(), *sets, references=4, **options)


def test_recording_for_a_bucket_is_removed() -> None:
    stream = np.random.default_rng(0)
    sets = [(stream.random((20, 1, SIDE, SIDE), np.float32), stream.integers(0, CLASSES, 20)) for _ in range(2)]
    store: Any = SimpleNamespace(location="s3://bucket/audits")
    with record(Fixed(), *sets, store, batch=8, seed=0, has_references=True) as recording:
        assert recording.images is not None
        assert recording.scores.parent == recording.images.parent
        assert recording.scores.is_file()
    assert not recording.scores.parent.exists()


def test_unneeded_recordings_are_garbage(folder: Path) -> None:
    stream = np.random.default_rng(0)
    sets = [(stream.random((20, 1, SIDE, SIDE), np.float32), stream.integers(0, CLASSES, 20)) for _ in range(2)]
    run = api.audit(Fixed(), *sets, store=folder / "store", mlflow="off", report=False)
    store = open_store(str(folder / "store"))
    (recording,) = (folder / "store" / "recordings").iterdir()
    os.utime(recording, (0, 0))
    assert not find_garbage(store)
    shutil.rmtree(folder / "store" / "runs" / run.run)
    name = f"recordings/{recording.name}"
    assert name in [file.name for file in find_garbage(store)]
    os.utime(recording)  # its run may yet be created
    assert name not in [file.name for file in find_garbage(store)]


def test_table_of_outputs_takes_the_place_of_a_model(folder: Path, engram: Here) -> None:
    paths = [path for name in ("mine", "others") for path in sorted((folder / name).rglob("*.png"))]
    names = [path.relative_to(folder).as_posix() for path in paths]
    lines = [f"{name},{number / len(names)}" for number, name in enumerate(names)]
    (folder / "outputs.csv").write_text("\n".join(["image,loss", *lines]) + "\n")
    run = api.open(engram.json("audit", "outputs.csv", "mine", "others")["run"], folder / "engram-store")
    assert run.table("loss_scores")["correct"].null_count == 120
    (folder / "outputs.csv").write_text("\n".join(["image,loss", *lines[2:]]) + "\n")
    message = engram("audit", "outputs.csv", "mine", "others", code=2).stderr
    assert len(message.strip().splitlines()) == 1
    assert "has no row for mine/class 0/0.png; 2 of 120 images are missing" in message


def test_price_is_planned_after_the_answer_only(folder: Path, engram: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    monkeypatch.setattr("orchestrator.cli.audit._next_step", lambda *files: planned.append(files) or "Stronger: this")
    engram.json("audit", "fixed.pt", "mine", "others")
    assert not planned
    lines = engram("audit", "fixed.pt", "mine", "others").stdout.splitlines()
    assert len(planned) == 1
    assert "Stronger: this" in lines


def test_notes_describe_conversions(folder: Path) -> None:
    stream = np.random.default_rng(0)
    sets = [(stream.integers(0, 256, (40, SIDE, SIDE), np.uint8), stream.integers(0, CLASSES, 40)) for _ in range(2)]
    run = api.audit(Fixed(), *sets, store=folder / "store", mlflow="off", report=False)
    assert "members: " in run.note


@pytest.mark.slow
def test_example_distinguishes_its_members(engram: Here) -> None:
    assert "Distinguishable: the model's loss" in engram("audit", "--example").stdout
