import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets import idx
from tasks.datasets.dataset import DatasetError

TRAIN = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
TEST = TRAIN[:2] + 100
LABELS = {"train-labels-idx1-ubyte": [0, 1, 2, 1, 0], "t10k-labels-idx1-ubyte": [2, 2]}


def header(*shape: int) -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)


def written(folder: Path, zipped: bool) -> Path:
    files = {name: header(len(labels)) + bytes(labels) for name, labels in LABELS.items()}
    files["train-images-idx3-ubyte"] = header(5, 4, 3) + TRAIN.tobytes()
    files["t10k-images-idx3-ubyte"] = header(2, 4, 3) + TEST.tobytes()
    folder.mkdir(parents=True)
    for name, raw in files.items():
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(raw) if zipped else raw)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_images_and_labels_come_back_as_they_were_written(tmp_path: Path, zipped: bool) -> None:
    source = idx.source(written(tmp_path / "set", zipped))
    assert source is not None
    images = source.read().images()
    np.testing.assert_array_equal(TRAIN[..., None], images.train_images)
    np.testing.assert_array_equal(TEST[..., None], images.test_images)
    assert ([0, 1, 2, 1, 0], [2, 2], 3) == (images.train_labels.tolist(), images.test_labels.tolist(), images.classes)


def test_packing_does_not_change_the_digest(tmp_path: Path) -> None:
    sources = [idx.source(written(tmp_path / str(zipped), zipped)) for zipped in (False, True)]
    digests = {source.read().digest() for source in sources if source}
    assert 1 == len(digests)


def test_a_file_gunzipped_without_being_renamed_is_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "set", zipped=True)
    path = folder / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.decompress(path.read_bytes()))
    source = idx.source(folder)
    assert source is not None
    assert 5 == len(source.read().images().train_labels)


def test_one_changed_pixel_changes_the_digest(tmp_path: Path) -> None:
    folder = written(tmp_path / "set", zipped=False)
    source = idx.source(folder)
    assert source is not None
    before = source.read().digest()
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    assert before != source.read().digest()


def test_a_folder_that_lacks_a_file_is_not_a_source(tmp_path: Path) -> None:
    folder = written(tmp_path / "set", zipped=False)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    assert idx.source(folder) is None


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (header(5, 4, 3) + bytes(59), "holds 59 values; its header announces 60"),
        (b"\x00\x00\x0d\x03" + bytes(12), "not an IDX file of 3 axes: it begins with 00000d03"),
        (b"", "begins with nothing"),
    ],
)
def test_a_damaged_file_is_named(raw: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        idx.parse(raw, "train-images-idx3-ubyte")


def test_a_cut_gzip_file_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "set", zipped=True)
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    source = idx.source(folder)
    assert source is not None
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        source.read()
