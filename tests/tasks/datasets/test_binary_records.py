"""Purchase-100 and Texas-100: each file format has the same content, and invalid files are refused."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset, DatasetError

STREAM = np.random.default_rng(3)
FEATURES = STREAM.integers(0, 2, (30, 6))
LABELS = np.arange(30) % 4
TEXTS: Mapping[str, Mapping[str, str]] = {
    "purchase100": {
        "dataset_purchase": "".join(
            ",".join(map(str, [label + 1, *row])) + "\n" for row, label in zip(FEATURES, LABELS, strict=True)
        )
    },
    "texas100": {
        "feats": "".join(",".join(map(str, row)) + "\n" for row in FEATURES),
        "labels": "".join(f"{label + 1}\n" for label in LABELS),
    },
}


def write(kind: str, name: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    if kind == "npz":
        np.savez(folder / f"{name}.npz", features=FEATURES.astype(float), labels=np.eye(4)[LABELS])
        return
    if kind == "texts":
        for file, text in TEXTS[name].items():
            (folder / file).write_text(text)
        return
    with tarfile.open(folder / f"dataset_{name[:-3]}.tgz", "w:gz") as archive:
        for file, text in TEXTS[name].items():
            member = tarfile.TarInfo(f"texas/100/{file}" if name == "texas100" else file)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


@pytest.mark.parametrize("name", TEXTS)
def test_every_file_format_has_same_content(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for kind in ("texts", "tgz", "npz"):
        write(kind, name, tmp_path / kind / name)
        monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / kind))
        digests.add(catalog.pin(Dataset(name)).digest)
        images = catalog.load(Dataset(name))
    assert len(digests) == 1
    assert images.shape == (1, 6, 1)
    assert images.classes == 4
    assert len(images.train_images) == 27
    assert len(images.test_images) == 3
    assert np.array_equal(255 * FEATURES[[9, 19, 29]], images.test_images[:, 0, :, 0])
    assert np.array_equal(LABELS[[0, 1, 2]], images.train_labels[:3])


@pytest.mark.parametrize(
    "labels",
    [3 * (LABELS + 1), 3.0 * (LABELS + 1), 3 * (LABELS + 1)[:, None], np.eye(13)[3 * (LABELS + 1)]],
    ids=["numbers", "fractions", "a column", "one-hot"],
)
def test_gaps_between_labels_add_no_classes(
    labels: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "purchase100").mkdir()
    np.savez(tmp_path / "purchase100" / "purchase100.npz", features=FEATURES, labels=labels)
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    images = catalog.load(Dataset("purchase100"))
    assert images.names == ("3", "6", "9", "12")
    assert images.train_labels[:3].tolist() == LABELS[:3].tolist()


@pytest.mark.parametrize("name", TEXTS)
def test_missing_set_names_its_source(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    with pytest.raises(
        DatasetError, match=rf"has no (dataset_purchase|feats and labels).*privacytrustlab.*data/{name}"
    ):
        catalog.pin(Dataset(name))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"dataset_purchase": "1,0,1\n" * 9}, "for each of at least 10 records"),
        ({"dataset_purchase": "1,0,1\n" * 9 + "1,0,2\n"}, "feature 1 of record 9 is 2; it must be 0 or 1"),
        ({"dataset_purchase": "0,0,1\n" * 10}, "the label of record 0 is too low"),
        ({"dataset_purchase": "1,0,a\n" * 10}, "not a table of integers"),
        ({"dataset_purchase": "1,0,1\n" * 9 + "1,0\n"}, "not a table of integers"),
        ({"dataset_purchase": ""}, "not a table of integers"),
        ({"dataset_purchase.tgz": "nothing"}, "cannot be read"),
        ({"purchase100.npz": "nothing"}, "no arrays features and labels that can be read"),
    ],
)
def test_invalid_files_are_refused(
    texts: Mapping[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path.parent))
    monkeypatch.setattr("tasks.datasets.places.LAYOUTS", {"purchase100": (tmp_path.name,)})
    with pytest.raises(DatasetError, match=message) as refused:
        catalog.pin(Dataset("purchase100"))
    assert "\n" not in str(refused.value)
