import pickle
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets import cifar
from tasks.datasets.dataset import DatasetError

ROWS = np.random.default_rng(0).integers(0, 256, (3, 3072), dtype=np.uint8)


def written(folder: Path, protocol: int = 2, key: type = bytes) -> Path:
    folder.mkdir()
    for number, name in enumerate((*cifar.TRAIN, *cifar.TEST)):
        names = {"data": ROWS, "labels": [number, 9, 0]}
        content = {name.encode() if key is bytes else name: value for name, value in names.items()}
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    return folder


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("key", [bytes, str])
def test_batches_are_read_in_order_whatever_their_pickle_protocol(tmp_path: Path, protocol: int, key: type) -> None:
    source = cifar.source(written(tmp_path / "batches", protocol, key))
    assert source is not None
    images = source.read().images()
    assert (15, 32, 32, 3) == images.train_images.shape
    assert [0, 9, 0, 1, 9, 0] == images.train_labels[:6].tolist()
    assert [5, 9, 0] == images.test_labels.tolist()
    # Pixel (row 2, column 5): red, green and blue lie 1024 apart.
    assert ROWS[1, [69, 69 + 1024, 69 + 2048]].tolist() == images.train_images[1, 2, 5].tolist()


def test_the_digest_is_of_pixels_and_labels_not_of_their_pickling(tmp_path: Path) -> None:
    sources = [cifar.source(written(tmp_path / str(protocol), protocol)) for protocol in (2, 5)]
    assert 1 == len({source.read().digest() for source in sources if source})


class Intruder:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (str(self.mark),)


def test_a_batch_that_would_run_something_is_refused_and_does_not_run_it(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({b"data": Intruder(mark), b"labels": [1]}))
    with pytest.raises(DatasetError, match="which no batch of images needs"):
        cifar.batch(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"data": ROWS[:, :10], b"labels": [1, 2, 3]}, r"data is not uint8 \(n, 3072\)"),
        ({b"data": ROWS, b"labels": [1]}, "labels are not a list of 3 numbers"),
        ([1, 2], "data is not uint8"),
    ],
)
def test_a_batch_of_another_form_is_refused(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(DatasetError, match=message):
        cifar.batch(path)


def test_a_cut_batch_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "batches")
    path = folder / "data_batch_3"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DatasetError, match="data_batch_3 is not a batch of CIFAR images"):
        cifar.read(folder)
