from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from tasks.datasets import catalog, svhn
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError

NOISE = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 6), dtype=np.uint8)
DIGITS = np.array([[10], [1], [9], [10], [5], [2]], np.uint8)
PARTS = {"train_32x32.mat": slice(0, 3), "extra_32x32.mat": slice(3, 5), "test_32x32.mat": slice(5, 6)}


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.delenv("ENGRAM_DATA", raising=False)


def written(folder: Path, compressed: bool = True) -> Path:
    """Six images: the first three for training, then two in the extra file, and one for testing."""
    folder.mkdir(parents=True)
    for name, rows in PARTS.items():
        savemat(folder / name, {"X": NOISE[..., rows], "y": DIGITS[rows]}, do_compression=compressed)
    return folder


def found(name: str, folder: Path) -> svhn.SvhnContent:
    source = svhn.source(name, folder)
    assert source is not None
    content = source.read()
    assert isinstance(content, svhn.SvhnContent)
    return content


@pytest.mark.parametrize("compressed", [False, True])
def test_images_and_digits_come_back_as_they_were_written(tmp_path: Path, compressed: bool) -> None:
    images = found("svhn", written(tmp_path / "svhn", compressed)).images()
    assert ([0, 1, 9], [2], 10) == (images.train_labels.tolist(), images.test_labels.tolist(), images.classes)
    assert ((3, 32, 32, 3), (1, 32, 32, 3)) == (images.train_images.shape, images.test_images.shape)
    assert NOISE[4, 7, :, 2].tolist() == images.train_images[2, 4, 7].tolist()
    np.testing.assert_array_equal(NOISE[..., 5], images.test_images[0])


def test_the_whole_set_has_the_extra_images_behind_the_training_images(tmp_path: Path) -> None:
    images = found("svhn-full", written(tmp_path / "svhn")).images()
    np.testing.assert_array_equal(NOISE[..., :5].transpose(3, 0, 1, 2), images.train_images)
    assert ([0, 1, 9, 0, 5], [2]) == (images.train_labels.tolist(), images.test_labels.tolist())


def test_the_digest_is_of_images_and_digits_not_of_how_they_are_packed(tmp_path: Path) -> None:
    folders = [written(tmp_path / str(compressed), compressed) for compressed in (False, True)]
    digests = [found(name, folder).digest() for folder in folders for name in svhn.TRAIN]
    assert digests[:2] == digests[2:]
    assert 2 == len(set(digests))
    savemat(folders[0] / "test_32x32.mat", {"X": NOISE[..., 5:], "y": DIGITS[4:5]})
    assert found("svhn", folders[0]).digest() not in digests


@pytest.mark.parametrize("layout", ["svhn", "SVHN"])
def test_it_is_found_in_its_folder_by_either_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    folder = written(tmp_path / layout)
    digests = []
    for root in (tmp_path, folder):
        monkeypatch.setenv("ENGRAM_DATA", str(root))
        digests += [pin(Dataset(name)).digest for name in ("svhn", "svhn-full")]
    assert 2 == len(set(digests))
    assert (28, 28, 1) == load(pin(Dataset("svhn-full#28x28#grey"))).shape


def test_a_folder_without_the_extra_images_says_so_and_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "svhn")
    (folder / "extra_32x32.mat").unlink()
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    assert 3 == len(load(pin(Dataset("svhn"))).train_images)
    with pytest.raises(DatasetError) as caught:
        pin(Dataset("svhn-full"))
    message = str(caught.value)
    assert 1 == len(message.splitlines())
    expected = (f"{folder} (which has no extra_32x32.mat)", "('train', 'extra', 'test')", "'data/svhn'")
    assert [] == [part for part in expected if part not in message]


def test_a_missing_set_names_the_folders_it_was_looked_for_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    expected = f"'svhn' not found: looked in {tmp_path / 'svhn'}, {tmp_path / 'SVHN'} "
    with pytest.raises(DatasetError, match=expected):
        pin(Dataset("svhn"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"y": DIGITS}, r"X is absent; expected uint8 \(32, 32, 3, n\)"),
        ({"X": NOISE[:, :, :2], "y": DIGITS}, r"X is uint8 \(32, 32, 2, 6\); expected uint8 \(32, 32, 3, n\)"),
        ({"X": NOISE / 255, "y": DIGITS}, r"X is double \(32, 32, 3, 6\); expected uint8"),
        ({"X": NOISE}, r"y is absent; expected \(6, 1\), a label for each image in X"),
        ({"X": NOISE, "y": DIGITS[:5]}, r"y is uint8 \(5, 1\); expected \(6, 1\)"),
        ({"X": NOISE, "y": DIGITS % 10}, "y holds 0; expected 1 to 10, where 10 stands for digit 0"),
        ({"X": NOISE, "y": DIGITS + 0.5}, "y holds 10.5; expected 1 to 10"),
    ],
)
def test_a_file_of_another_form_is_named(tmp_path: Path, content: dict[str, object], message: str) -> None:
    folder = written(tmp_path / "svhn")
    savemat(folder / "train_32x32.mat", content)
    with pytest.raises(DatasetError, match=rf"train_32x32\.mat: {message}"):
        found("svhn", folder)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("left", [0, 100, 2000, 3000])
def test_a_cut_file_is_named_in_one_line(tmp_path: Path, compressed: bool, left: int) -> None:
    folder = written(tmp_path / "svhn", compressed)
    path = folder / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DatasetError, match=r"test_32x32\.mat(: y is absent| is not a MATLAB file)") as caught:
        found("svhn", folder)
    assert "\n" not in str(caught.value)
