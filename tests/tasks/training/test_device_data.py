"""Data by rows: a training is the same to the bit wherever its pictures lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tasks.datasets.catalog import load, open_pictures, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images, PictureSet
from tasks.models.networks import Architecture
from tasks.training import device_data
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.device_data import ResidentData, StreamedData, place_images, resident, stream_pictures
from tasks.training.members import Member, Spec, Trained
from tasks.training.recipe import Recipe
from tasks.training.strategies import Strategy, Workload, candidates
from tasks.training.trainer import train_many
from tasks.worker import hardware
from tasks.worker.compute_context import ComputeContext, use_context
from tests.tasks.datasets import scans

CPU = torch.device("cpu")
COUNT = 50  # of each class, of which a fifth is for testing


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PictureSet]:
    """A folder of pictures in memory, from the cache, and decoded from its files."""
    folder = tmp_path_factory.mktemp("pictures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGRAM_CACHE", str(folder / "cache"))
        dataset = pin(Dataset(f"folder:{scans.classes(folder / 'scans', COUNT)}#8x8#rgb"))
        return {
            "resident": load(dataset),
            "mapped": open_pictures(dataset, "cache"),
            "decoded": open_pictures(dataset, "files"),
        }


def trained(images: PictureSet, way: str, network: str = "mlp1") -> dict[int, Trained]:
    spec = Spec(CrossEntropy(Architecture(network, images.shape, images.classes)), Recipe(2, 16, 1e-3, 1), images)
    white = np.full(images.shape, 255, np.uint8)
    members = [Member(1, np.arange(80)), Member(2, np.arange(70), {3: white, 9: white // 2}), Member(3, np.arange(33))]
    with use_context(ComputeContext(way=way)):  # type: ignore[arg-type]
        found = dict(train_many(spec, members, CPU))
    assert all(isinstance(each, Trained) for each in found.values()), found
    return found  # type: ignore[return-value]


def bits(found: dict[int, Trained]) -> list[object]:
    return [
        (index, each.best_epoch, each.history, *(values.tobytes() for values in each.weights.values()))
        for index, each in sorted(found.items())
    ]


@pytest.mark.parametrize(("way", "network"), [("loop", "mlp1"), ("stack", "mlp1"), ("loop", "cnn1")])
def test_a_training_is_the_same_to_the_bit_whichever_kind_of_data_it_reads(
    kinds: dict[str, PictureSet], way: str, network: str
) -> None:
    expected, mapped, decoded = (bits(trained(images, way, network)) for images in kinds.values())
    assert expected == mapped
    assert expected == decoded


def test_pictures_in_memory_that_do_not_fit_are_streamed_to_the_same_bits(
    kinds: dict[str, PictureSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = kinds["resident"]
    assert isinstance(loaded, Images)
    expected = bits(trained(loaded, "loop"))
    monkeypatch.setattr(hardware, "available_memory", lambda: 1000)
    other = Images(loaded.train_images, loaded.train_labels, loaded.test_images, loaded.test_labels, loaded.classes)
    assert isinstance(place_images(other, CPU), StreamedData)
    assert isinstance(place_images(loaded, CPU), ResidentData)  # it is there already
    assert expected == bits(trained(other, "loop"))


def test_what_was_opened_by_rows_is_streamed_and_what_fits_is_resident_once(kinds: dict[str, PictureSet]) -> None:
    assert [place_images(images, CPU).is_resident for images in kinds.values()] == [True, False, False]
    assert place_images(kinds["resident"], CPU) is resident(kinds["resident"], CPU)


@pytest.mark.parametrize("kind", ["resident", "mapped", "decoded"])
def test_replaced_pictures_stand_behind_all_others(kinds: dict[str, PictureSet], kind: str) -> None:
    images = kinds[kind]
    black, white = np.zeros(images.shape, np.uint8), np.full(images.shape, 255, np.uint8)
    data, aliases = place_images(images, CPU).replace_images([{5: white}, {}, {7: black, 5: black}])
    assert aliases == [{5: 80}, {}, {7: 81, 5: 82}]
    pixels, labels = data.rows(torch.tensor([[80, 5], [81, 82]], dtype=torch.int32))
    assert tuple(pixels.shape) == (2, 2, 192)
    assert [[int(pixels[0, 0].min()), 0], [int(each.max()) for each in pixels[1]]] == [[255, 0], [0, 0]]
    assert images.train.pixels(np.array([5])).reshape(-1).tolist() == pixels[0, 1].tolist()
    true = images.train.labels
    assert [[true[5], true[5]], [true[7], true[5]]] == labels.tolist()


def test_the_test_split_comes_by_parts_that_end_where_it_ends(kinds: dict[str, PictureSet]) -> None:
    whole = kinds["resident"].test
    for images in kinds.values():
        data = place_images(images, CPU)
        assert data.test_count == 20
        parts = [data.test_rows(start, start + 8) for start in (0, 8, 16)]
        assert [len(pixels) for pixels, _ in parts] == [8, 8, 4]
        assert whole.pixels(np.arange(20)).reshape(20, -1).tolist() == torch.cat([part[0] for part in parts]).tolist()
        assert whole.labels.tolist() == torch.cat([part[1] for part in parts]).tolist()


def test_no_step_is_recorded_that_waits_for_its_data(
    kinds: dict[str, PictureSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = kinds["mapped"]
    spec = Spec(CrossEntropy(Architecture("mlp1", images.shape, 2)), Recipe(1, 16, 1e-3), images)
    members = [Member(seed, np.arange(8)) for seed in range(5)]

    def on_gpu(data: device_data.DeviceData) -> list[Strategy]:
        workload = Workload(spec, data, members, [{}] * 5)
        monkeypatch.setattr(Workload, "device", torch.device("cuda"))
        found = candidates(workload, 5)
        monkeypatch.undo()
        return found

    assert {each.name: each.captured for each in on_gpu(resident(images, CPU))} == {
        "loop": False,
        "graph": True,
        "stack": True,
    }
    assert {each.name: each.captured for each in on_gpu(stream_pictures(images, CPU))} == {
        "loop": False,
        "stack": False,
    }


def test_a_way_settled_for_resident_data_is_not_that_of_streamed_data(kinds: dict[str, PictureSet]) -> None:
    images = kinds["mapped"]
    spec = Spec(CrossEntropy(Architecture("mlp1", images.shape, 2)), Recipe(1, 16, 1e-3), images)
    names = [Workload(spec, data, [], []).name for data in (resident(images, CPU), stream_pictures(images, CPU))]
    assert [names[0], f"{names[0]}, data streamed"] == names
