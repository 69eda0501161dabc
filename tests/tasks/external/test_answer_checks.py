"""Answers are checked when they are read, with the same messages for files, tables and `engram.audit`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.audits.forgetting.measures.query_confidences import Ask as AskTarget
from tasks.audits.forgetting.measures.query_confidences import confidences as target_confidences
from tasks.audits.membership.given import ask_file
from tasks.audits.membership.given_config import AskedFile
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import InMemory
from tasks.datasets.picture_rows import Selected
from tasks.external import confidences
from tasks.external.model_file import Interface, ModelFile
from tasks.external.model_file import pin as pin_model
from tasks.worker.files import File
from tests.support.split_audits import audit_sets

COUNT = 300


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        yield


def records() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    digits = load(Dataset("digits"))
    return digits.train_images[: 2 * COUNT], digits.train_labels[: 2 * COUNT]


class Nearest(nn.Module):
    """Classifies digits by the mean image of each class, in a given class order and with a given output layer."""

    def __init__(self, order: list[int], ending: str) -> None:
        super().__init__()
        images, labels = records()
        means = []
        for label in range(10):
            means.append(torch.from_numpy(images[labels == label].mean(0).reshape(-1) / 255).float())
        self.means = nn.Parameter(torch.stack([means[label] for label in order]))
        self.ending = ending

    def forward(self, images: Tensor) -> Tensor:
        logits = 4.0 - torch.cdist(images.flatten(1), self.means) ** 2 / 20
        if self.ending == "sigmoid":
            return torch.sigmoid(logits)
        if self.ending == "softmax":
            return torch.softmax(logits, 1)
        if self.ending == "dropout":
            return nn.functional.dropout(logits, 0.5, training=True)
        return logits


def ask_membership(model: nn.Module, folder: Path) -> object:
    images, labels = records()
    data = load(pin(Dataset("digits")))
    return ask_file(AskedFile(saved(model, folder)), data, images, labels)


def saved(model: nn.Module, folder: Path) -> ModelFile:
    torch.jit.script(model).save(str(folder / "m.pt"))
    return pin_model(ModelFile(str(folder / "m.pt")))


def ask_forgetting(model: nn.Module, folder: Path) -> object:
    target = AskTarget.__new__(AskTarget)
    object.__setattr__(target, "file", saved(model, folder))
    object.__setattr__(target, "interface", Interface())
    images, labels = records()
    rows = np.arange(len(images))
    return target_confidences(target, (), Selected(InMemory(images, labels), rows), labels)


def ask_table(model: nn.Module, folder: Path) -> object:
    images, labels = records()
    with torch.no_grad():
        logits = model(torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255).numpy()
    ids = [f"{number}.png" for number in range(len(labels))]
    pq.write_table(pa.table({"image": ids, "logits": logits.tolist()}), folder / "outputs.parquet")
    return confidences.read(File(str(folder / "outputs.parquet")), ids, labels)


def ask_audit(model: nn.Module, folder: Path) -> object:
    images, labels = records()
    fractions = images.transpose(0, 3, 1, 2).astype(np.float32) / 255
    inside, outside = ((fractions[rows], labels[rows]) for rows in (slice(COUNT), slice(COUNT, None)))
    return audit_sets(model, inside, outside)


def ask_audit_of_a_function(model: nn.Module, folder: Path) -> object:
    return ask_audit(lambda images: model(torch.as_tensor(images)), folder)  # type: ignore[arg-type]


def ask_audit_of_a_file(model: nn.Module, folder: Path) -> object:
    return ask_audit(saved(model, folder).name, folder)  # type: ignore[arg-type]


ROUTES: dict[str, Callable[[nn.Module, Path], object]] = {
    "a file in membership": ask_membership,
    "a file in forgetting": ask_forgetting,
    "a table": ask_table,
    "engram.audit of a module": ask_audit,
    "engram.audit of a function": ask_audit_of_a_function,
    "engram.audit of a file": ask_audit_of_a_file,
}
OWN = list(range(10))
AS_TEXT = [0, 1, 3, 2, 4, 5, 6, 8, 7, 9]  # two pairs are swapped: most classes are in the right position
FAULTS: dict[str, tuple[list[int], str, str]] = {
    "another order": (
        [*OWN[1:], 0],
        "",
        r"of the images, but for \d+% with its classes in another order: 9, 0, 1, ",
    ),
    "a few in another order": (
        AS_TEXT,
        "",
        r"in another order: 0, 1, 3, 2, 4, 5, 6, 8, 7, 9 for our classes 0, 1, 2, ",
    ),
    "a sigmoid": (OWN, "sigmoid", "numbers in .0, 1.: these are outputs of a sigmoid, not logits"),
    "a softmax": (OWN, "softmax", "these are probabilities, not logits"),
    "a random answer": (OWN, "dropout", "two evaluations of one image differ by"),
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_sound_model_passes(route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.external.split_audit.TREES", 2)  # of the control without the model
    assert ROUTES[route](Nearest(OWN, ""), tmp_path) is not None


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("route", ROUTES)
def test_fault_has_same_message_on_every_route(route: str, fault: str, tmp_path: Path) -> None:
    if route == "a table" and fault == "a random answer":
        pytest.skip("a table has one evaluation; repeated images detect this fault")
    order, ending, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message) as refused:
        ROUTES[route](Nearest(order, ending), tmp_path)
    assert "\n" not in str(refused.value)
