"""`engram.audit` accepts models and records in all common forms, and refuses others with a one-line error."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tasks.external.audit_inputs import RecordSet, read_sets
from tasks.external.audited_model import ask_model
from tasks.numerics.ranks import area_under_curve
from tests.support.split_audits import audit_sets

COUNT = 60
CLASSES = 3
SIDE = 6
Records = tuple[NDArray[Any], NDArray[np.int64]]


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forest that compares the sets without the model takes half a second, and decides nothing here."""
    monkeypatch.setattr("tasks.external.split_audit.TREES", 2)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        yield


def stored(channels: int = 3) -> tuple[Records, Records]:
    """Images (n, h, w, c) of integers up to 255; the brightness depends on the class."""
    stream = np.random.default_rng(0)
    labels = stream.integers(0, CLASSES, 2 * COUNT)
    noise = stream.integers(0, 80, (2 * COUNT, SIDE, SIDE, channels))
    images = (noise + 80 * labels[:, None, None, None]).astype(np.uint8)
    return (images[:COUNT], labels[:COUNT]), (images[COUNT:], labels[COUNT:])


def as_fractions(records: Records) -> Records:
    return np.divide(records[0].transpose(0, 3, 1, 2), 255, dtype=np.float32), records[1]


def make_network(channels: int = 3) -> nn.Module:
    """A network for fractions (n, c, h, w) that classifies most of these images correctly."""
    layers = nn.Sequential(nn.Conv2d(channels, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, CLASSES))
    with torch.no_grad():
        layers[0].weight.fill_(1 / channels)
        layers[0].bias.zero_()
        centres = torch.tensor([40.0, 120.0, 200.0]) / 255
        layers[3].weight.copy_((40 * centres)[:, None])
        layers[3].bias.copy_(-20 * centres**2)
    return layers.eval()


def ask(model: Any, members: Any, non_members: Any) -> tuple[NDArray[np.float64], tuple[RecordSet, RecordSet]]:
    """log p of both sets' labels, and both sets as passed to the model."""
    scores, sets = ask_model(model, read_sets(members, non_members), 256)
    return np.concatenate([part.log_p for part in scores]), sets


@pytest.fixture(scope="module")
def expected() -> NDArray[np.float64]:
    members, non_members = map(as_fractions, stored())
    scores, _ = ask(make_network(), members, non_members)
    assert audit_sets(make_network(), members, non_members).auc.value == area_under_curve(
        scores[:COUNT], scores[COUNT:]
    )
    return scores


class Giving(nn.Module):
    """A network with outputs in another form."""

    def __init__(self, give: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.network = make_network()
        self.give = give

    def forward(self, images: Tensor) -> Any:
        return self.give(self.network(images), images)


@dataclasses.dataclass
class ModelOutput:
    logits: Tensor


def save_script(folder: Path) -> str:
    torch.jit.script(make_network()).save(str(folder / "m.pt"))
    return str(folder / "m.pt")


def save_fixed(folder: Path) -> str:
    """A program of torch.export for seven images at once."""
    images = torch.zeros(7, 3, SIDE, SIDE)
    torch.export.save(torch.export.export(make_network(), (images,)), folder / "m.pt2")
    return str(folder / "m.pt2")


MODELS: dict[str, Callable[[Path], Any]] = {
    "module": lambda _: make_network(),
    "in training mode": lambda _: make_network().train(),
    "bfloat16": lambda _: make_network().bfloat16(),
    "float16": lambda _: make_network().half(),
    "float64": lambda _: make_network().double(),
    "TorchScript": lambda _: torch.jit.script(make_network()),
    "parallel": lambda _: nn.DataParallel(make_network()),
    ".logits": lambda _: Giving(lambda logits, _: ModelOutput(logits)),
    "dictionary": lambda _: Giving(lambda logits, images: {"logits": logits, "hidden": logits}),
    "dictionary of one": lambda _: Giving(lambda logits, images: {"out": logits}),
    "tuple with images": lambda _: Giving(lambda logits, images: (logits, images)),
    "tuple with a loss": lambda _: Giving(lambda logits, images: (logits.mean(), logits)),
    "tuple of one": lambda _: Giving(lambda logits, images: (logits,)),
    "log-probabilities": lambda _: Giving(lambda logits, images: logits.log_softmax(1)),
    "function of tensors": lambda _: make_network().__call__,
    "function of arrays": lambda _: lambda images: make_network()(torch.as_tensor(images)).detach().numpy(),
    "function of lists": lambda _: lambda images: make_network()(torch.as_tensor(images)).tolist(),
    "with gradients": lambda _: lambda images: make_network()(torch.as_tensor(images)),
    "file": save_script,
    "path": lambda folder: Path(save_script(folder)),
    "file of a fixed batch": save_fixed,
}


@pytest.mark.parametrize("name", MODELS)
def test_model_of_every_form_is_evaluated(name: str, expected: NDArray[np.float64], tmp_path: Path) -> None:
    scores, sets = ask(MODELS[name](tmp_path), *map(as_fractions, stored()))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=0.2 if name in ("bfloat16", "float16") else 1e-5)
    assert [records.notes for records in sets] == [(), ()]


class Items:
    """A data set of dictionaries with Pillow images, as on the Hugging Face hub."""

    def __init__(self, records: Records) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records[1])

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"image": Image.fromarray(self.records[0][number]), "label": int(self.records[1][number])}


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __init__(self, records: Records) -> None:
        self.records = records

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        for image, label in zip(*self.records, strict=True):
            yield torch.as_tensor(image), int(label)


def tensors(records: Records) -> TensorDataset:
    return TensorDataset(*map(torch.as_tensor, as_fractions(records)))


def save_folder(records: Records, folder: Path) -> Path:
    for number, (image, label) in enumerate(zip(*records, strict=True)):
        (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"class{label}" / f"{number:03d}.png")
    return folder


SCALED = "scaled from [0, 255] to [0, 1]"
MOVED = "channels were moved to the front"
RECORDS: dict[str, tuple[Callable[[Records, Path], Any], tuple[str, ...]]] = {
    "arrays": (lambda records, _: as_fractions(records), ()),
    "a list of both": (lambda records, _: list(as_fractions(records)), ()),
    "tensors": (lambda records, _: tuple(map(torch.as_tensor, as_fractions(records))), ()),
    "lists": (lambda records, _: (list(as_fractions(records)[0]), records[1].tolist()), ()),
    "float64": (lambda records, _: (as_fractions(records)[0].astype(np.float64), records[1]), ()),
    "half": (lambda records, _: (torch.as_tensor(as_fractions(records)[0]).half(), records[1]), ()),
    "bfloat16": (lambda records, _: (torch.as_tensor(as_fractions(records)[0]).bfloat16(), records[1]), ()),
    "bytes": (lambda records, _: (records[0].transpose(0, 3, 1, 2), records[1]), (SCALED,)),
    "whole numbers": (lambda records, _: (records[0].transpose(0, 3, 1, 2).astype(int), records[1]), (SCALED,)),
    "fractions, channels last": (lambda r, _: (as_fractions(r)[0].transpose(0, 2, 3, 1), r[1]), (MOVED,)),
    "bytes, channels last": (lambda records, _: records, (SCALED, MOVED)),
    "a column of labels": (lambda records, _: (as_fractions(records)[0], records[1][:, None]), ()),
    "labels as floats": (lambda records, _: (as_fractions(records)[0], records[1].astype(float)), ()),
    "one-hot labels": (lambda records, _: (as_fractions(records)[0], np.eye(CLASSES)[records[1]]), ()),
    "labels of pandas": (lambda records, _: (as_fractions(records)[0], pd.Series(records[1])), ()),
    "a mapping": (lambda records, _: dict(zip(("images", "labels"), as_fractions(records), strict=True)), ()),
    "a data set": (lambda records, _: tensors(records), ()),
    "a subset": (lambda records, _: torch.utils.data.Subset(tensors(records), range(COUNT)), ()),
    "pictures of Pillow": (lambda records, _: Items(records), (SCALED, MOVED)),
    "a list of pairs": (lambda records, _: list(zip(*as_fractions(records), strict=True)), ()),
    "a loader": (lambda records, _: DataLoader(tensors(records), batch_size=7), ()),
    "a loader of single items": (lambda records, _: DataLoader(tensors(records), batch_size=None), ()),
    "a stream": (lambda records, _: Stream(as_fractions(records)), ()),
    "a generator": (lambda records, _: zip(*as_fractions(records), strict=True), ()),
    "a folder": (save_folder, ("of folder:",)),
    "a folder by its text": (lambda records, folder: str(save_folder(records, folder)), ("of folder:",)),
    "a data set by its name": (lambda records, folder: f"folder:{save_folder(records, folder)}", ("of folder:",)),
}


@pytest.mark.parametrize("name", RECORDS)
def test_records_of_every_form_are_read(name: str, expected: NDArray[np.float64], tmp_path: Path) -> None:
    form, notes = RECORDS[name]
    sets_given = [form(records, tmp_path / side) for records, side in zip(stored(), ("in", "out"), strict=True)]
    scores, sets = ask(make_network(), *sets_given)
    is_half = name in ("half", "bfloat16")
    for actual_scores, expected_scores in zip(np.split(scores, 2), np.split(expected, 2), strict=True):
        order = np.argsort(actual_scores), np.argsort(expected_scores)  # a folder is read class by class
        np.testing.assert_allclose(
            actual_scores[order[0]], expected_scores[order[1]], rtol=0, atol=0.1 if is_half else 1e-5
        )
    for records in sets:
        assert len(records.notes) == (1 if notes else 0)
        assert all(part in records.notes[0] for part in notes)


def test_grey_images_get_a_channel() -> None:
    members, non_members = stored(channels=1)
    by_channel = audit_sets(make_network(1), *map(as_fractions, (members, non_members)))
    without = audit_sets(
        make_network(1), (members[0][..., 0] / 255, members[1]), (non_members[0][..., 0] / 255, non_members[1])
    )
    assert without.auc == by_channel.auc


def test_tables_of_pandas_are_records() -> None:
    members, non_members = ((image.reshape(COUNT, -1) / 255, labels) for image, labels in stored(1))
    linear = nn.Linear(SIDE * SIDE, CLASSES)
    nn.init.constant_(linear.bias, -1.0)  # outputs between 0 and 1 would be taken for a sigmoid's
    tables = []
    for values, labels in (members, non_members):
        tables.append(pd.DataFrame(values).assign(label=labels))
    np.testing.assert_array_equal(ask(linear, *tables)[0], ask(linear, members, non_members)[0])


def test_copies_in_a_set_count_once() -> None:
    members, non_members = map(as_fractions, stored())
    expected = audit_sets(make_network(), members, non_members)
    result = audit_sets(make_network(), tuple(np.concatenate([part] * 3) for part in members), non_members)
    assert result.auc == expected.auc
    assert result.members == COUNT
    repeated, _ = read_sets(tuple(np.concatenate([part] * 3) for part in members), non_members)
    assert repeated.notes == ("members: 120 of 180 records are copies of others and count once",)
    assert np.array_equal(repeated.rows(), np.arange(COUNT))


@pytest.mark.parametrize(
    "convert",
    [
        lambda images: images,
        lambda images: (images / 255).astype(np.float32),
        lambda images: images / 255,
        lambda images: (images * np.float32(1 / 255)).astype(np.float32),
        lambda images: (images / 255).astype(np.float16),
        lambda images: torch.as_tensor(images / 255).bfloat16(),
        lambda images: images.transpose(0, 3, 1, 2),
        lambda images: torch.as_tensor(images / 255).permute(0, 3, 1, 2),
    ],
)
def test_members_among_non_members_are_recognised(convert: Callable[[Any], Any]) -> None:
    (images, labels), (non_member_images, non_member_labels) = stored()
    for first, second in ((images, convert(images)), (convert(images), images)):
        with pytest.raises(ValueError, match=f"{COUNT} of {COUNT} nonmembers are also members"):
            audit_sets(make_network(), (first, labels), (second, labels))
    mixed = convert(np.concatenate([non_member_images[:50], images[:5]]))
    with pytest.raises(ValueError, match="5 of 55 nonmembers are also members"):
        audit_sets(make_network(), (images, labels), (mixed, np.r_[non_member_labels[:50], labels[:5]]))


def in_other_order(model: nn.Module) -> Callable[[Any], Any]:
    return lambda images: model(torch.as_tensor(images))[:, [2, 0, 1]]


def dropping(images: Any) -> Tensor:
    return nn.functional.dropout(make_network()(torch.as_tensor(images)), 0.5)


def normalising(images: Any) -> Tensor:
    pixels = nn.functional.batch_norm(torch.as_tensor(images), None, None, training=True)
    return make_network()(0.25 * pixels + 0.5)


class Unreadable:
    def __array__(self, *_: Any, **__: Any) -> None:
        raise OSError("two\nlines")


REFUSED: dict[str, tuple[Any, str]] = {
    "a path without a file": ("none.pt", "there is no file"),
    "a text": ("none", "model is 'none'; expected model.pt"),
    "nothing": (None, "model is a NoneType; expected a torch module, a function"),
    "a class": (nn.Flatten, "model is the class Flatten; expected"),
    "a state dict": (make_network().state_dict(), "model is a OrderedDict; expected"),
    "softmax": (nn.Sequential(make_network(), nn.Softmax(1)), "these are probabilities, not logits; pass a function"),
    "sigmoid": (nn.Sequential(make_network(), nn.Sigmoid()), "these are outputs of a sigmoid, not logits"),
    "dropout within": (dropping, "two evaluations of one image differ"),
    "batch norm within": (normalising, "two evaluations of one image differ"),
    "other order of classes": (
        in_other_order(make_network()),
        r"1, 2, 0 for our classes 0, 1, 2; number the labels in its",
    ),
    "several outputs": (Giving(lambda z, _: (z, 2 * z)), r"2 outputs: 0 \(60, 3\), 1 \(60, 3\); pass a function"),
    "images back": (lambda images: images, r"model returns \(60, 3, 6, 6\) for 60 images"),
    "too few rows": (
        lambda images: np.zeros((3, 3)),
        r"model returns \(3, 3\) for 60 images; expected \(60, classes\)",
    ),
    "one number": (lambda images: np.zeros(()), r"model returns \(\) for 60 images"),
    "one logit of three": (
        lambda images: np.zeros(len(images)),
        "model returns 2 classes, but the labels reach up to 2",
    ),
    "too few classes": (Giving(lambda z, _: z[:, :2]), "model returns 2 classes, but the labels reach up to 2"),
    "NaN": (Giving(lambda z, _: z * float("nan")), "are not all finite"),
    "words": (lambda images: ["a"] * len(images), "expected an array of numbers"),
    "no array": (lambda images: Unreadable(), "expected an array of numbers: two lines"),
    "a failure": (lambda images: 1 / 0, r"model failed on 60 images of float32 \(3, 6, 6\): ZeroDivisionError"),
    "other channels": (make_network(1), r"model failed on 60 images of float32 \(3, 6, 6\): RuntimeError: "),
    "out of memory": (lambda images: np.empty(1 << 50), "model failed on 60 images .*MemoryError"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_models_are_refused(name: str) -> None:
    model, message = REFUSED[name]
    members, non_members = map(as_fractions, stored())
    with pytest.raises(ValueError, match=message) as refused:
        audit_sets(copy.copy(model), members, non_members)
    assert "\n" not in str(refused.value)


def test_unreadable_sets_give_one_line_errors(tmp_path: Path) -> None:
    members, non_members = map(as_fractions, stored())
    (tmp_path / "empty").mkdir()
    (tmp_path / "two" / "train" / "a").mkdir(parents=True)
    (tmp_path / "two" / "test" / "a").mkdir(parents=True)
    images, labels = members
    odd: list[Any] = [
        *(None, 3, 2.5, "", "nowhere", "folder:nowhere", "\0", tmp_path / "empty", str(tmp_path / "two"), object()),
        *([], (), {}, {"a": 1}, set(), b"bytes", iter([]), range(5), lambda: 1, Unreadable(), ["a", "b"]),
        *((images,), (images, None), (None, labels), (images, labels, labels), (images, labels[:5]), (labels, images)),
        *((images, labels - 5), (images, labels + 0.5), (images, np.full(COUNT, np.nan)), (images, ["a"] * COUNT)),
        *((images[:5], labels[:5]), (images * np.nan, labels), (images.astype(complex), labels)),
        *((images.astype(str), labels), (images.astype(object), labels), (images[:, 0, 0, 0], labels), (3, 4)),
        *((images, labels.astype(object)), (images, labels + 10**12), ([images[0], images[0][:, :2]] * 30, labels)),
        *(pd.DataFrame({"x": [1, 2]}), pd.Series([1, 2]), [(1, 2)] * 30, [images[0]] * 30, [None] * 30),
        *(DataLoader(TensorDataset(torch.as_tensor(images))), Image.fromarray(np.zeros((4, 4), np.uint8))),
        *(torch.zeros(()), torch.zeros(30), np.zeros((0, 3, 6, 6)), (np.zeros((0, 4)), np.zeros(0))),
    ]
    for invalid in odd:
        for pair in ((invalid, non_members), (members, invalid)):
            with pytest.raises(ValueError) as refused:  # noqa: PT011 - any line will do
                audit_sets(make_network(), *pair)
            assert "\n" not in str(refused.value)
            assert str(refused.value).strip()
    for batch in (0, -1, 2.5, None):
        with pytest.raises(ValueError, match="batch is "):
            audit_sets(make_network(), members, non_members, batch=batch)  # type: ignore[arg-type]


def test_classes_of_two_folders_must_agree(tmp_path: Path) -> None:
    members, non_members = stored()
    inside = save_folder(members, tmp_path / "in")
    outside = save_folder(non_members, tmp_path / "out")
    (outside / "class0").rename(outside / "fox")
    with pytest.raises(ValueError, match="members have the classes class0, class1, class2 and nonmembers class1, "):
        audit_sets(make_network(), inside, outside)


def test_memorised_members_reveal_class_order() -> None:
    members, non_members = map(as_fractions, stored())
    columns = {}
    for image, label in zip(*members, strict=True):
        columns[np.asarray(image).tobytes()] = (label + 1) % 3

    def answer(images: NDArray[np.float32]) -> NDArray[np.float64]:
        """Logits with the member's class in the next column, and the first column for non-members."""
        return 3.0 * np.eye(3)[[columns.get(np.asarray(image).tobytes(), 0) for image in images]]

    with pytest.raises(ValueError, match="1, 2, 0 for our classes 0, 1, 2"):
        audit_sets(answer, members, non_members)
