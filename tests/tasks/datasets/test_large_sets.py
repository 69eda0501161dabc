"""Every data set of the catalogue gives the same images whether it is in memory or read by rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from tasks.datasets import catalog, celeba, svhn_files
from tasks.datasets.benchmark_files import IDX_FILES
from tasks.datasets.catalog import load, pin
from tasks.datasets.copies import first_copies, groups_of
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.datasets.large_images import LargeImages
from tasks.datasets.mixtures import overlap
from tests.tasks.datasets import scans

RANDOM = np.random.default_rng(0)
SVHN = {"train": 9, "extra": 7, "test": 3}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Published data sets and a folder, with a copy among the training images of each."""
    folder = tmp_path_factory.mktemp("sets")
    write_svhn(folder / "svhn")
    write_celeba(folder / "celeba")
    write_acdc(folder / "acdc")
    write_mnist(folder / "mnist")
    scans.classes(folder / "scans")
    (folder / "scans" / "cat" / "04.png").write_bytes((folder / "scans" / "cat" / "03.png").read_bytes())
    return folder


def write_svhn(folder: Path) -> None:
    folder.mkdir()
    for name, count in SVHN.items():
        images = RANDOM.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        images[..., 1] = images[..., 0]
        digits = RANDOM.integers(1, 11, (count, 1))
        savemat(folder / f"{name}_32x32.mat", {"y": digits, "X": images}, do_compression=name != "extra")


def write_celeba(folder: Path) -> None:
    (folder / celeba.PICTURES).mkdir(parents=True)
    lines = []
    for number, partition in enumerate((0, 0, 0, 1, 1)):
        pixels = np.random.default_rng(min(number, 1)).integers(0, 256, (218, 178, 3), dtype=np.uint8)
        Image.fromarray(pixels + np.uint8(number)).save(folder / celeba.PICTURES / f"{number}.png")
        lines.append(f"{number}.png {partition}\n")
    (folder / celeba.PARTITIONS).write_text("".join(lines))


def write_acdc(folder: Path) -> None:
    lines = ["patient,tesla\n"]
    for number, tesla in ((1, "1.5"), (2, "3"), (3, "3"), (101, "3")):
        patient = folder / ("testing" if number > 100 else "training") / f"patient{number:03}"
        patient.mkdir(parents=True)
        (patient / "Info.cfg").write_text("Group: DCM\n" if number % 2 else "Group: RV\n")
        values = np.random.default_rng(number).integers(0, 900, (20, 30, 3, 2), dtype=np.int16)
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), patient / f"{patient.name}_4d.nii.gz")
        lines.append(f"{number},{tesla}\n")
    (folder / "field_strengths.csv").write_text("".join(lines))


def write_mnist(folder: Path) -> None:
    folder.mkdir()
    train, test = (RANDOM.integers(0, 256, (count, 28, 28), dtype=np.uint8) for count in (6, 3))
    train[4] = train[2]
    arrays = (train, np.arange(6, dtype=np.uint8), test, np.arange(3, dtype=np.uint8))
    for name, array in zip(IDX_FILES, arrays, strict=True):
        header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
        (folder / f"{name}.gz").write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture(autouse=True)
def _environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setattr(svhn_files, "TOGETHER", 2)
    monkeypatch.setenv("ENGRAM_DATA", str(root))
    monkeypatch.setenv("ENGRAM_CACHE", str(root / "cache"))


def both_ways(name: str) -> tuple[Images, LargeImages]:
    dataset = pin(Dataset(name))
    images = load(dataset)
    assert isinstance(images, Images)
    return images, scans.load_by_rows(dataset)


@pytest.mark.parametrize(
    "name",
    [
        "svhn-full",
        "celeba#40x40",
        "acdc-3t",
        "svhn#28x28#grey",
        "celeba#grey",
        "acdc-1.5t#96x96",
        "mnist#40x40#rgb",
        "mnist-on-photos#40x40",
        "digits#12x12",
        "svhn#inverted2",
        "svhn-full#16x16#duplicated2",
        "mnist#mislabelled3",
        "folder:scans#inverted2",
        "folder:scans#duplicated3",
        "folder:scans#8x8#mislabelled2",
    ],
)
def test_rows_equal_images_in_memory(name: str) -> None:
    images, by_rows = both_ways(name)
    assert by_rows.shape == images.shape
    assert (by_rows.classes, by_rows.names) == (images.classes, images.names)
    for loaded, rows in ((images.train, by_rows.train), (images.test, by_rows.test)):
        backwards = np.arange(len(loaded))[::-1]
        np.testing.assert_array_equal(rows.labels, loaded.labels)
        np.testing.assert_array_equal(rows.pixels(backwards), loaded.pixels(backwards))
    everything = np.arange(len(images.train))
    np.testing.assert_array_equal(first_copies(by_rows), first_copies(images))
    np.testing.assert_array_equal(groups_of(by_rows, everything), groups_of(images, everything))


def test_planted_images_share_the_file_of_their_data_set(root: Path) -> None:
    plain, planted = (scans.load_by_rows(pin(Dataset(f"folder:scans{option}"))) for option in ("", "#inverted2"))
    assert planted.cache.path == plain.cache.path


def test_large_set_shares_images_with_set_in_memory() -> None:
    full = scans.load_by_rows(pin(Dataset("svhn-full")))
    half = load(pin(Dataset("svhn")))
    rows = np.arange(len(half.train))
    assert overlap(half, rows, full, np.arange(len(full.train))) == overlap(
        half, rows, load(Dataset("svhn-full")), rows
    )
    assert len(overlap(half, rows, full, np.arange(len(full.train)))) == SVHN["train"]


@pytest.mark.parametrize("name", ["svhn/train_32x32.mat", "celeba/img_align_celeba/0.png"])
def test_file_changed_after_opening_is_named(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(root / "other cache"))
    path = root / name
    before = path.read_bytes()
    by_rows = scans.load_by_rows(pin(Dataset("svhn-full" if name.startswith("svhn") else "celeba")))
    other = root / ("svhn/extra_32x32.mat" if name.startswith("svhn") else "celeba/img_align_celeba/1.png")
    path.write_bytes(other.read_bytes())
    try:
        with pytest.raises(DatasetError, match=rf"{path} has changed since the data set was opened"):
            by_rows.train.pixels(np.arange(2))
    finally:
        path.write_bytes(before)
