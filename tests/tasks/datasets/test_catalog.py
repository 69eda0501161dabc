"""Outlines of missing benchmark sets, known by size, are available only while a run is priced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks.datasets import catalog
from tasks.datasets.catalog import is_embedded, load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.places import DESCRIPTIONS, EMBEDDED, LAYOUTS, OUTLINES, candidates, known_names, use_outlines
from tests.tasks.datasets import test_parquet
from tests.tasks.datasets.test_benchmark_files import cifar_files, idx_files


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.delenv("ENGRAM_DATA", raising=False)


@pytest.mark.parametrize("layout", ["mnist", "MNIST/raw", "fashion-mnist", "FashionMNIST/raw"])
def test_mnist_is_found_in_its_usual_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    name = "fashion-mnist" if "ashion" in layout else "mnist"
    folder = idx_files(tmp_path / layout, zipped=True)
    digests = []
    for root in (tmp_path, *(folder.parents[:1] if "/" in layout else ()), folder):
        monkeypatch.setenv("ENGRAM_DATA", str(root))
        digests.append(pin(Dataset(name)).digest)
    assert len(set(digests)) == 1


def test_only_installed_sets_are_embedded() -> None:
    embedded = [name for name in known_names() if is_embedded(name)]
    assert ["digits", "photos", "digits-on-photos", "facts", "facts-stated", "tickets"] == embedded == list(EMBEDDED)
    assert not is_embedded("parquet:digits")


def test_fashion_mnist_is_not_read_as_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(idx_files(tmp_path / "fashion-mnist", zipped=False)))
    with pytest.raises(DatasetError, match="'mnist' not found"):
        pin(Dataset("mnist"))


def test_cifar10_is_found_as_batches_or_as_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    test_parquet.written(tmp_path / "cifar10")
    pictures = load(Dataset("cifar10"))
    cifar_files(tmp_path / "cifar-10-batches-py")
    batches = load(Dataset("cifar10"))
    assert len(pictures.train_images) == 6
    assert len(batches.train_images) == 15
    assert pictures.classes == 10
    assert batches.classes == 10
    assert set(pictures.train_labels.tolist()) == {0, 1, 2}


def test_users_folder_is_pinned_by_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_parquet.written(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    pinned = pin(Dataset("parquet:mine"))
    monkeypatch.chdir("/")
    assert pinned.name == f"parquet:{tmp_path / 'mine'}"
    assert len(load(pinned).train_images) == 6


def test_missing_set_names_location_and_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    with pytest.raises(DatasetError) as caught:
        pin(Dataset("cifar10"))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    expected = (str(tmp_path / "cifar-10-batches-py"), str(tmp_path / "cifar10"), "ENGRAM_DATA", "import CIFAR10")
    assert [part for part in expected if part not in message] == []


def test_missing_set_reports_unset_data_folder() -> None:
    with pytest.raises(DatasetError, match="'mnist' not found: ENGRAM_DATA is not set; set ENGRAM_DATA to the folder"):
        pin(Dataset("mnist"))


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=f"no train.parquet and test.parquet, or shards of them, in {tmp_path}"):
        pin(Dataset(f"parquet:{tmp_path}"))


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(DatasetError, match="unknown data set 'minst'; did you mean 'mnist'"):
        pin(Dataset("minst"))


def test_remembered_digest_is_not_recomputed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    folder = idx_files(tmp_path / "mnist", zipped=False)
    digests: dict[str, str] = {}
    digest = pin(Dataset("mnist"), digests).digest
    assert [digest] == list(digests.values())
    digests = dict.fromkeys(digests, "remembered")
    assert pin(Dataset("mnist"), digests).digest == "remembered"
    path = folder / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    os.utime(path, ns=(1, 1))
    assert pin(Dataset("mnist"), digests).digest != "remembered"


def test_unpinned_content_is_refused() -> None:
    for act in (pin, load):
        with pytest.raises(DatasetError, match="data set 'digits' is not the one that was pinned"):
            act(Dataset("digits", "0" * 64))


def test_content_changed_after_pinning_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    folder = idx_files(tmp_path / "mnist", zipped=False)
    pinned = pin(Dataset("mnist"))
    path = folder / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    with pytest.raises(DatasetError, match="not the one that was pinned"):
        load(pinned)


def test_set_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = pin(Dataset("digits"))
    assert load(pinned) is load(pinned)
    assert load(pinned) is load(Dataset("digits"))


def test_every_known_name_is_described() -> None:
    usual = {
        "mnist",
        "mnist-on-photos",
        "fashion-mnist",
        "cifar10",
        "svhn",
        "svhn-full",
        "celeba",
        "purchase100",
        "texas100",
        "acdc-3t",
        "acdc-1.5t",
        "imagenet",
        "squad",
        "drop",
    }
    path_names = {"folder:PATH", "list:FILE", "parquet:PATH", "records:FILE", "squad:PATH", "drop:PATH"}
    path_names |= {"imagenet:PATH", "boxed:TABLE", "table:FILE", "rows:COUNT", "webdataset:PATH", "hf:NAME@REVISION"}
    assert usual == {*LAYOUTS, "mnist-on-photos"}
    assert usual | {*EMBEDDED} | path_names == set(known_names())


def test_root_may_be_layout_or_its_parent(tmp_path: Path) -> None:
    root = tmp_path / "MNIST"
    assert [root / "MNIST/raw", root / "raw"] == list(candidates(root, "MNIST/raw"))


@pytest.mark.parametrize("name", [name for name in OUTLINES if not name.startswith("acdc")])
def test_outline_has_described_size_without_memory(name: str) -> None:
    with use_outlines():
        images = catalog.load(catalog.pin(Dataset(name)))
    stated = DESCRIPTIONS[name].split()[0].replace(",", "")
    assert int(stated) == len(images.train_images) + len(images.test_images)
    assert images.train_images.strides[0] == 0
    assert images.test_images.strides[0] == 0


def test_outlines_exist_only_while_pricing() -> None:
    with use_outlines(), pytest.raises(DatasetError, match="data set 'cifar10' not found"):
        catalog.pin(Dataset("cifar10#28x28#grey"))
    with use_outlines(everything=True):
        assert catalog.load(catalog.pin(Dataset("cifar10#28x28#grey"))).shape == (28, 28, 1)
        assert len(catalog.load_questions(catalog.pin(Dataset("squad"))).validation) == 10_570
    with pytest.raises(DatasetError, match="data set 'mnist' not found"):
        catalog.pin(Dataset("mnist"))


def test_outline_digest_matches_no_data_set() -> None:
    with use_outlines():
        digests = [catalog.pin(Dataset(name)).digest for name in OUTLINES]
    with pytest.raises(DatasetError):
        catalog.load(Dataset("svhn", "0" * 64))
    assert len(OUTLINES) == len(set(digests)) + 1  # mnist and fashion-mnist are of one size
