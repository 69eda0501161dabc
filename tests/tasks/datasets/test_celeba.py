"""Folders in the layout of CelebA's aligned faces, small and made up."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tasks.datasets import catalog, celeba
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images

HEIGHT, WIDTH = 218, 178


def written(folder: Path, shades: dict[str, list[int]]) -> Path:
    """JPEGs of one shade each, by the number of their partition."""
    (folder / celeba.PICTURES).mkdir(parents=True)
    lines = []
    for partition, chosen in shades.items():
        for shade in chosen:
            name = f"{len(lines) + 1:06}.jpg"
            saved(folder / celeba.PICTURES / name, np.full((HEIGHT, WIDTH, 3), shade, np.uint8), "JPEG")
            lines.append(f"{name} {partition}\n")
    (folder / celeba.PARTITIONS).write_text("".join(lines))
    return folder


def saved(path: Path, picture: NDArray[np.uint8], kind: str = "PNG") -> None:
    """The picture, losslessly unless it is of one shade, whatever the file is called."""
    out = io.BytesIO()
    Image.fromarray(picture).save(out, kind)
    path.write_bytes(out.getvalue())


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    written(tmp_path / "celeba", {"0": [10, 20, 30], "1": [40, 50], "2": [60]})
    return tmp_path


def refused(name: str = "celeba") -> str:
    with pytest.raises(DatasetError) as caught:
        pin(Dataset(name))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def shades(images: Images) -> tuple[list[int], list[int]]:
    train, test = images.train_images, images.test_images
    assert [each[0, 0, 0] for split in (train, test) for each in split] == [
        int(each.mean()) for split in (train, test) for each in split
    ]
    return train[:, 0, 0, 0].tolist(), test[:, 0, 0, 0].tolist()


def replaced(root: Path, picture: NDArray[np.uint8], number: int = 1) -> NDArray[np.uint8]:
    """What the data set makes of this picture in the place of a training one."""
    saved(root / "celeba" / celeba.PICTURES / f"{number:06}.jpg", picture)
    return load(pin(Dataset("celeba"))).train_images[number - 1]


def test_the_test_split_holds_the_validation_images_and_there_are_no_classes(root: Path) -> None:
    images = load(pin(Dataset("celeba")))
    assert (images.shape, images.classes) == ((32, 32, 3), 1)
    assert shades(images) == ([10, 20, 30], [40, 50])
    assert (images.train_labels.tolist(), images.test_labels.tolist()) == ([0, 0, 0], [0, 0])


@pytest.mark.parametrize("place", ["celeba", "."])
def test_the_root_may_be_the_folder_itself(root: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    before = pin(Dataset("celeba")).digest
    monkeypatch.setenv("ENGRAM_DATA", str(root if place == "." else root / place))
    assert before == pin(Dataset("celeba")).digest


def test_nothing_but_the_face_is_seen(root: Path) -> None:
    picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    picture[40:188, 15:163] = (200, 100, 50)
    assert replaced(root, picture).tolist() == [[[200, 100, 50]] * 32] * 32
    # A frame of one more pixel within the cut does show.
    picture[40] = picture[187] = picture[:, 15] = picture[:, 162] = 0
    seen = replaced(root, picture)
    assert int((seen[..., 0] < 200).sum()) == 4 * 31
    assert (seen[1:-1, 1:-1] == (200, 100, 50)).all()


def test_the_face_is_resized_by_pillows_bilinear_filter(root: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    expected = Image.fromarray(picture).crop((15, 40, 163, 188)).resize((32, 32), Image.Resampling.BILINEAR)
    assert np.asarray(expected).tolist() == replaced(root, picture).tolist()


def test_a_triangle_of_the_shrinkings_width_weighs_the_pixels(root: Path) -> None:
    """The filter by its formula: weights 1 - |distance| / scale, scale = 148 / 32, cut at the edge and normalised."""
    picture = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    scale = 148 / 32
    away = np.abs(np.arange(148) + 0.5 - (np.arange(32)[:, None] + 0.5) * scale) / scale
    weights = np.maximum(0, 1 - away)
    weights /= weights.sum(1, keepdims=True)
    face = picture[40:188, 15:163].astype(np.float64)
    expected = np.einsum("ir,rcd,jc->ijd", weights, face, weights)
    assert np.abs(expected - replaced(root, picture)).max() <= 1.01  # rounded after columns and after rows


def test_another_size_is_resized_from_the_picture_itself(root: Path) -> None:
    picture = np.random.default_rng(2).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    small = replaced(root, picture)
    images = load(pin(Dataset("celeba#64x64")))
    expected = Image.fromarray(picture).crop((15, 40, 163, 188)).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.asarray(expected).tolist() == images.train_images[0].tolist()
    assert small.shape == (32, 32, 3)
    assert load(pin(Dataset("celeba#grey"))).shape == (32, 32, 1)


def test_the_digest_is_of_content_splits_and_size_and_of_no_path(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = [pin(Dataset(name)).digest for name in ("celeba", "celeba#64x64", "celeba#grey")]
    copy = Path(shutil.copytree(root / "celeba", tmp_path / "copy" / "celeba"))
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "copy"))
    assert digests[0] == pin(Dataset("celeba")).digest
    assert len(set(digests)) == 3
    listed = copy / celeba.PARTITIONS
    listed.write_text(listed.read_text().replace("000003.jpg 0", "000003.jpg 1"))
    assert pin(Dataset("celeba")).digest not in digests
    assert shades(load(Dataset("celeba"))) == ([10, 20], [30, 40, 50])


def test_a_digest_is_read_again_when_a_picture_changes_and_only_then(root: Path) -> None:
    known: dict[str, str] = {}
    pin(Dataset("celeba"), known)
    known = dict.fromkeys(known, "ab" * 32)
    assert pin(Dataset("celeba"), known).digest == "ab" * 32
    os.utime(root / "celeba" / celeba.PICTURES / "000006.jpg")  # of the test images, which are not read
    assert pin(Dataset("celeba"), known).digest == "ab" * 32
    os.utime(root / "celeba" / celeba.PICTURES / "000002.jpg")
    assert pin(Dataset("celeba"), known).digest != "ab" * 32


def test_an_absent_set_says_where_it_was_looked_for_and_how_to_get_it(root: Path) -> None:
    (root / "celeba" / celeba.PARTITIONS).unlink()
    said = refused()
    expected = (f"'celeba' not found: looked in {root / 'celeba'}", "ENGRAM_DATA", "import CelebA as D", "gdown")
    assert [part for part in expected if part not in said] == []


def test_pictures_that_are_not_read_need_not_be_there(root: Path) -> None:
    before = pin(Dataset("celeba")).digest
    (root / "celeba" / celeba.PICTURES / "000006.jpg").unlink()
    assert before == pin(Dataset("celeba")).digest


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (
            "000001.jpg 3\n",
            "line 1 is '000001.jpg 3'; expected an image's name and one of 0 (train), 1 (validation)",
        ),
        ("000001.jpg\n", "line 1 is '000001.jpg'"),
        ("000001.jpg 0\n\n000001.jpg 1\n", "line 3 names 000001.jpg again"),
        ("000001.jpg 0\n000009.jpg 1\n", "line 2 names 000009.jpg, but there is no file"),
        ("000001.jpg 0\n", "names no image of the validation split"),
    ],
)
def test_a_list_that_is_not_as_it_should_be_is_refused_by_its_line(root: Path, wrong: str, expected: str) -> None:
    (root / "celeba" / celeba.PARTITIONS).write_text(wrong)
    assert expected in refused()


def test_a_picture_that_is_broken_or_not_aligned_is_refused_by_its_name(root: Path) -> None:
    path = root / "celeba" / celeba.PICTURES / "000002.jpg"
    saved(path, np.zeros((300, 200, 3), np.uint8))
    with pytest.raises(DatasetError, match=r"000002\.jpg is 300 x 200; CelebA's aligned images are 218 x 178"):
        load(Dataset("celeba"))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DatasetError, match=r"000002\.jpg cannot be read as an image: "):
        load(Dataset("celeba"))
