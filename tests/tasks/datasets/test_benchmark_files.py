from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from tasks.datasets import catalog
from tasks.datasets.benchmark_files import (
    CIFAR_TEST,
    CIFAR_TRAIN,
    SVHN_TRAIN,
    ArrayContent,
    cifar_source,
    idx_source,
    parse_idx,
    read_batch,
    read_cifar,
    svhn_source,
)
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError

IDX_TRAIN = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
IDX_TEST = IDX_TRAIN[:2] + 100
LABELS = {"train-labels-idx1-ubyte": [0, 1, 2, 1, 0], "t10k-labels-idx1-ubyte": [2, 2]}


def idx_header(*shape: int) -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)


def idx_files(folder: Path, zipped: bool) -> Path:
    files = {name: idx_header(len(labels)) + bytes(labels) for name, labels in LABELS.items()}
    files["train-images-idx3-ubyte"] = idx_header(5, 4, 3) + IDX_TRAIN.tobytes()
    files["t10k-images-idx3-ubyte"] = idx_header(2, 4, 3) + IDX_TEST.tobytes()
    folder.mkdir(parents=True)
    for name, raw in files.items():
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(raw) if zipped else raw)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_images_and_labels_are_read_exactly(tmp_path: Path, zipped: bool) -> None:
    source = idx_source(idx_files(tmp_path / "set", zipped))
    assert source is not None
    images = source.read().images()
    np.testing.assert_array_equal(IDX_TRAIN[..., None], images.train_images)
    np.testing.assert_array_equal(IDX_TEST[..., None], images.test_images)
    assert images.train_labels.tolist() == [0, 1, 2, 1, 0]
    assert images.test_labels.tolist() == [2, 2]
    assert images.classes == 3


def test_compression_does_not_change_the_digest(tmp_path: Path) -> None:
    sources = []
    for zipped in (False, True):
        sources.append(idx_source(idx_files(tmp_path / str(zipped), zipped)))
    digests = {source.read().digest() for source in sources if source}
    assert len(digests) == 1


def test_unpacked_file_with_gz_name_is_read(tmp_path: Path) -> None:
    folder = idx_files(tmp_path / "set", zipped=True)
    path = folder / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.decompress(path.read_bytes()))
    source = idx_source(folder)
    assert source is not None
    assert len(source.read().images().train_labels) == 5


def test_one_changed_pixel_changes_the_digest(tmp_path: Path) -> None:
    folder = idx_files(tmp_path / "set", zipped=False)
    source = idx_source(folder)
    assert source is not None
    before = source.read().digest()
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    assert before != source.read().digest()


def test_incomplete_folder_is_no_source(tmp_path: Path) -> None:
    folder = idx_files(tmp_path / "set", zipped=False)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    assert idx_source(folder) is None


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (idx_header(5, 4, 3) + bytes(59), "contains 59 values; its header announces 60"),
        (b"\x00\x00\x0d\x03" + bytes(12), "not an IDX file of 3 axes: it begins with 00000d03"),
        (b"", "begins with nothing"),
    ],
)
def test_damaged_idx_file_is_named(raw: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        parse_idx(raw, "train-images-idx3-ubyte")


def test_cut_gzip_file_is_named(tmp_path: Path) -> None:
    folder = idx_files(tmp_path / "set", zipped=True)
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    source = idx_source(folder)
    assert source is not None
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        source.read()


CIFAR_ROWS = np.random.default_rng(0).integers(0, 256, (3, 3072), dtype=np.uint8)


def cifar_files(folder: Path, protocol: int = 2, key: type = bytes) -> Path:
    folder.mkdir()
    for number, name in enumerate((*CIFAR_TRAIN, *CIFAR_TEST)):
        names = {"data": CIFAR_ROWS, "labels": [number, 9, 0]}
        content = {name.encode() if key is bytes else name: value for name, value in names.items()}
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    return folder


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("key", [bytes, str])
def test_batches_are_read_for_every_pickle_protocol(tmp_path: Path, protocol: int, key: type) -> None:
    source = cifar_source(cifar_files(tmp_path / "batches", protocol, key))
    assert source is not None
    images = source.read().images()
    assert images.train_images.shape == (15, 32, 32, 3)
    assert images.train_labels[:6].tolist() == [0, 9, 0, 1, 9, 0]
    assert images.test_labels.tolist() == [5, 9, 0]
    # Pixel (row 2, column 5): red, green and blue lie 1024 apart.
    assert CIFAR_ROWS[1, [69, 69 + 1024, 69 + 2048]].tolist() == images.train_images[1, 2, 5].tolist()


def test_digest_is_independent_of_pickling(tmp_path: Path) -> None:
    sources = []
    for protocol in (2, 5):
        sources.append(cifar_source(cifar_files(tmp_path / str(protocol), protocol)))
    assert len({source.read().digest() for source in sources if source}) == 1


class Intruder:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (str(self.mark),)


def test_malicious_batch_is_refused_without_running(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({b"data": Intruder(mark), b"labels": [1]}))
    with pytest.raises(DatasetError, match="which a batch of images does not need"):
        read_batch(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"data": CIFAR_ROWS[:, :10], b"labels": [1, 2, 3]}, r"data is not uint8 \(n, 3072\)"),
        ({b"data": CIFAR_ROWS, b"labels": [1]}, "labels are not a list of 3 numbers"),
        ([1, 2], "data is not uint8"),
    ],
)
def test_malformed_batch_is_refused(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(DatasetError, match=message):
        read_batch(path)


def test_cut_batch_is_named(tmp_path: Path) -> None:
    folder = cifar_files(tmp_path / "batches")
    path = folder / "data_batch_3"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DatasetError, match="data_batch_3 is not a batch of CIFAR images"):
        read_cifar(folder)


NOISE = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 6), dtype=np.uint8)
DIGITS = np.array([[10], [1], [9], [10], [5], [2]], np.uint8)
PARTS = {"train_32x32.mat": slice(0, 3), "extra_32x32.mat": slice(3, 5), "test_32x32.mat": slice(5, 6)}


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.delenv("ENGRAM_DATA", raising=False)


def svhn_files(folder: Path, compressed: bool = True) -> Path:
    """Six images: the first three for training, then two in the extra file, and one for testing."""
    folder.mkdir(parents=True)
    for name, rows in PARTS.items():
        savemat(folder / name, {"X": NOISE[..., rows], "y": DIGITS[rows]}, do_compression=compressed)
    return folder


def read_svhn(name: str, folder: Path) -> ArrayContent:
    source = svhn_source(name, folder)
    assert source is not None
    content = source.read()
    assert isinstance(content, ArrayContent)
    return content


@pytest.mark.parametrize("compressed", [False, True])
def test_svhn_images_and_digits_are_read_exactly(tmp_path: Path, compressed: bool) -> None:
    images = read_svhn("svhn", svhn_files(tmp_path / "svhn", compressed)).images()
    assert images.train_labels.tolist() == [0, 1, 9]
    assert images.test_labels.tolist() == [2]
    assert images.classes == 10
    assert images.train_images.shape == (3, 32, 32, 3)
    assert images.test_images.shape == (1, 32, 32, 3)
    assert NOISE[4, 7, :, 2].tolist() == images.train_images[2, 4, 7].tolist()
    np.testing.assert_array_equal(NOISE[..., 5], images.test_images[0])


def test_svhn_full_appends_the_extra_images(tmp_path: Path) -> None:
    images = read_svhn("svhn-full", svhn_files(tmp_path / "svhn")).images()
    np.testing.assert_array_equal(NOISE[..., :5].transpose(3, 0, 1, 2), images.train_images)
    assert images.train_labels.tolist() == [0, 1, 9, 0, 5]
    assert images.test_labels.tolist() == [2]


def test_svhn_digest_is_independent_of_compression(tmp_path: Path) -> None:
    folders = []
    for compressed in (False, True):
        folders.append(svhn_files(tmp_path / str(compressed), compressed))
    digests = []
    for folder in folders:
        for name in SVHN_TRAIN:
            digests.append(read_svhn(name, folder).digest())
    assert digests[:2] == digests[2:]
    assert len(set(digests)) == 2
    savemat(folders[0] / "test_32x32.mat", {"X": NOISE[..., 5:], "y": DIGITS[4:5]})
    assert read_svhn("svhn", folders[0]).digest() not in digests


@pytest.mark.parametrize("layout", ["svhn", "SVHN"])
def test_svhn_is_found_in_either_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    folder = svhn_files(tmp_path / layout)
    digests = []
    for root in (tmp_path, folder):
        monkeypatch.setenv("ENGRAM_DATA", str(root))
        digests += [pin(Dataset(name)).digest for name in ("svhn", "svhn-full")]
    assert len(set(digests)) == 2
    assert load(pin(Dataset("svhn-full#28x28#grey"))).shape == (28, 28, 1)


def test_missing_extra_images_name_their_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = svhn_files(tmp_path / "svhn")
    (folder / "extra_32x32.mat").unlink()
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    assert len(load(pin(Dataset("svhn"))).train_images) == 3
    with pytest.raises(DatasetError) as caught:
        pin(Dataset("svhn-full"))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    expected = (f"{folder} (which has no extra_32x32.mat)", "('train', 'extra', 'test')", "'data/svhn'")
    assert [part for part in expected if part not in message] == []


def test_missing_set_names_searched_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        ({"X": NOISE, "y": DIGITS % 10}, "y contains 0; expected 1 to 10, where 10 stands for digit 0"),
        ({"X": NOISE, "y": DIGITS + 0.5}, "y contains 10.5; expected 1 to 10"),
    ],
)
def test_malformed_svhn_file_is_named(tmp_path: Path, content: dict[str, object], message: str) -> None:
    folder = svhn_files(tmp_path / "svhn")
    savemat(folder / "train_32x32.mat", content)
    with pytest.raises(DatasetError, match=rf"train_32x32\.mat: {message}"):
        read_svhn("svhn", folder)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("size", [0, 100, 2000, 3000])
def test_cut_svhn_file_is_named(tmp_path: Path, compressed: bool, size: int) -> None:
    folder = svhn_files(tmp_path / "svhn", compressed)
    path = folder / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DatasetError, match=r"test_32x32\.mat(: y is absent| is not a MATLAB file)") as caught:
        read_svhn("svhn", folder)
    assert "\n" not in str(caught.value)
