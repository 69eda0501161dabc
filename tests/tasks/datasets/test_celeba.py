"""Small synthetic folders in the layout of CelebA's aligned faces."""

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

HEIGHT = 218
WIDTH = 178


def write_celeba(folder: Path, shades: dict[str, list[int]]) -> Path:
    """Write JPEGs of one shade each, by number of their partition."""
    (folder / celeba.PICTURES).mkdir(parents=True)
    lines = []
    for partition, shades_of_part in shades.items():
        for shade in shades_of_part:
            name = f"{len(lines) + 1:06}.jpg"
            saved(folder / celeba.PICTURES / name, np.full((HEIGHT, WIDTH, 3), shade, np.uint8), "JPEG")
            lines.append(f"{name} {partition}\n")
    (folder / celeba.PARTITIONS).write_text("".join(lines))
    return folder


def saved(path: Path, picture: NDArray[np.uint8], kind: str = "PNG") -> None:
    """Save an image, as PNG by default, under any file name."""
    out = io.BytesIO()
    Image.fromarray(picture).save(out, kind)
    path.write_bytes(out.getvalue())


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    write_celeba(tmp_path / "celeba", {"0": [10, 20, 30], "1": [40, 50], "2": [60]})
    return tmp_path


def error_of(name: str = "celeba") -> str:
    with pytest.raises(DatasetError) as caught:
        pin(Dataset(name))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def shades(images: Images) -> tuple[list[int], list[int]]:
    train = images.train_images
    test = images.test_images
    assert [image[0, 0, 0] for split in (train, test) for image in split] == [
        int(image.mean()) for split in (train, test) for image in split
    ]
    return train[:, 0, 0, 0].tolist(), test[:, 0, 0, 0].tolist()


def replace_image(root: Path, picture: NDArray[np.uint8], number: int = 1) -> NDArray[np.uint8]:
    """The pixels that the data set returns after this image replaced a training image."""
    saved(root / "celeba" / celeba.PICTURES / f"{number:06}.jpg", picture)
    return load(pin(Dataset("celeba"))).train_images[number - 1]


def test_split_is_validation_and_has_no_classes(root: Path) -> None:
    images = load(pin(Dataset("celeba")))
    assert images.shape == (32, 32, 3)
    assert images.classes == 1
    assert shades(images) == ([10, 20, 30], [40, 50])
    assert images.train_labels.tolist() == [0, 0, 0]
    assert images.test_labels.tolist() == [0, 0]


@pytest.mark.parametrize("layout", ["celeba", "."])
def test_root_may_be_the_folder_itself(root: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    before = pin(Dataset("celeba")).digest
    monkeypatch.setenv("ENGRAM_DATA", str(root if layout == "." else root / layout))
    assert before == pin(Dataset("celeba")).digest


def test_images_are_cropped_to_the_face(root: Path) -> None:
    picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    picture[40:188, 15:163] = (200, 100, 50)
    assert replace_image(root, picture).tolist() == [[[200, 100, 50]] * 32] * 32
    # A frame one pixel inside the crop is visible.
    picture[40] = picture[187] = picture[:, 15] = picture[:, 162] = 0
    framed = replace_image(root, picture)
    assert int((framed[..., 0] < 200).sum()) == 4 * 31
    assert (framed[1:-1, 1:-1] == (200, 100, 50)).all()


def test_face_is_resized_by_pillows_bilinear_filter(root: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    expected = Image.fromarray(picture).crop((15, 40, 163, 188)).resize((32, 32), Image.Resampling.BILINEAR)
    assert np.asarray(expected).tolist() == replace_image(root, picture).tolist()


def test_resizing_weights_pixels_by_a_triangle(root: Path) -> None:
    """The filter by its formula: weights 1 - |distance| / scale, scale = 148 / 32, cut at the edge and normalised."""
    picture = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    scale = 148 / 32
    away = np.abs(np.arange(148) + 0.5 - (np.arange(32)[:, None] + 0.5) * scale) / scale
    weights = np.maximum(0, 1 - away)
    weights /= weights.sum(1, keepdims=True)
    face = picture[40:188, 15:163].astype(np.float64)
    expected = np.einsum("ir,rcd,jc->ijd", weights, face, weights)
    assert np.abs(expected - replace_image(root, picture)).max() <= 1.01  # rounded after columns and after rows


def test_other_sizes_are_resized_from_the_original(root: Path) -> None:
    picture = np.random.default_rng(2).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    small = replace_image(root, picture)
    images = load(pin(Dataset("celeba#64x64")))
    expected = Image.fromarray(picture).crop((15, 40, 163, 188)).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.asarray(expected).tolist() == images.train_images[0].tolist()
    assert small.shape == (32, 32, 3)
    assert load(pin(Dataset("celeba#grey"))).shape == (32, 32, 1)


def test_digest_covers_content_splits_and_size(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for name in ("celeba", "celeba#64x64", "celeba#grey"):
        digests.append(pin(Dataset(name)).digest)
    copy = Path(shutil.copytree(root / "celeba", tmp_path / "copy" / "celeba"))
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "copy"))
    assert digests[0] == pin(Dataset("celeba")).digest
    assert len(set(digests)) == 3
    partitions = copy / celeba.PARTITIONS
    partitions.write_text(partitions.read_text().replace("000003.jpg 0", "000003.jpg 1"))
    assert pin(Dataset("celeba")).digest not in digests
    assert shades(load(Dataset("celeba"))) == ([10, 20], [30, 40, 50])


def test_digest_is_recomputed_only_after_changes(root: Path) -> None:
    digests: dict[str, str] = {}
    pin(Dataset("celeba"), digests)
    digests = dict.fromkeys(digests, "ab" * 32)
    assert pin(Dataset("celeba"), digests).digest == "ab" * 32
    os.utime(root / "celeba" / celeba.PICTURES / "000006.jpg")  # a test image, which is not read
    assert pin(Dataset("celeba"), digests).digest == "ab" * 32
    os.utime(root / "celeba" / celeba.PICTURES / "000002.jpg")
    assert pin(Dataset("celeba"), digests).digest != "ab" * 32


def test_missing_set_names_location_and_download(root: Path) -> None:
    (root / "celeba" / celeba.PARTITIONS).unlink()
    message = error_of()
    expected = (f"'celeba' not found: looked in {root / 'celeba'}", "ENGRAM_DATA", "import CelebA as D", "gdown")
    assert [part for part in expected if part not in message] == []


def test_unread_images_may_be_missing(root: Path) -> None:
    before = pin(Dataset("celeba")).digest
    (root / "celeba" / celeba.PICTURES / "000006.jpg").unlink()
    assert before == pin(Dataset("celeba")).digest


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_invalid_list_is_refused_by_line(root: Path, text: str, expected: str) -> None:
    (root / "celeba" / celeba.PARTITIONS).write_text(text)
    assert expected in error_of()


def test_broken_or_unaligned_image_is_refused_by_name(root: Path) -> None:
    path = root / "celeba" / celeba.PICTURES / "000002.jpg"
    saved(path, np.zeros((300, 200, 3), np.uint8))
    with pytest.raises(DatasetError, match=r"000002\.jpg is 300 x 200; CelebA's aligned images are 218 x 178"):
        load(Dataset("celeba"))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DatasetError, match=r"000002\.jpg cannot be read as an image: "):
        load(Dataset("celeba"))
