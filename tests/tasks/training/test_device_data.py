"""Data by rows: a training is identical wherever its images are stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tasks.datasets.catalog import load, pin
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
    """The images of a folder: in memory, and from the cache."""
    folder = tmp_path_factory.mktemp("pictures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGRAM_CACHE", str(folder / "cache"))
        dataset = pin(Dataset(f"folder:{scans.classes(folder / 'scans', COUNT)}#8x8#rgb"))
        return {"resident": load(dataset), "cached": scans.load_by_rows(dataset)}


def train_models(images: PictureSet, way: str, network: str = "mlp1") -> dict[int, Trained]:
    spec = Spec(CrossEntropy(Architecture(network, images.shape, images.classes)), Recipe(2, 16, 1e-3, 1), images)
    white = np.full(images.shape, 255, np.uint8)
    members = [Member(1, np.arange(80)), Member(2, np.arange(70), {3: white, 9: white // 2}), Member(3, np.arange(33))]
    with use_context(ComputeContext(way=way)):  # type: ignore[arg-type]
        outcomes = dict(train_many(spec, members, CPU))
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values()), outcomes
    return outcomes  # type: ignore[return-value]


def bits(models: dict[int, Trained]) -> list[object]:
    result = []
    for index, model in sorted(models.items()):
        result.append(
            (index, model.best_epoch, model.history, *(values.tobytes() for values in model.weights.values()))
        )
    return result


@pytest.mark.parametrize(("way", "network"), [("loop", "mlp1"), ("stack", "mlp1"), ("loop", "cnn1")])
def test_kinds_of_data_give_identical_trainings(kinds: dict[str, PictureSet], way: str, network: str) -> None:
    expected, cached = (bits(train_models(images, way, network)) for images in kinds.values())
    assert expected == cached


def test_large_images_are_streamed_with_identical_results(
    kinds: dict[str, PictureSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = kinds["resident"]
    assert isinstance(loaded, Images)
    expected = bits(train_models(loaded, "loop"))
    monkeypatch.setattr(hardware, "available_memory", lambda: 1000)
    unplaced = Images(loaded.train_images, loaded.train_labels, loaded.test_images, loaded.test_labels, loaded.classes)
    assert isinstance(place_images(unplaced, CPU), StreamedData)
    assert isinstance(place_images(loaded, CPU), ResidentData)  # already placed
    assert expected == bits(train_models(unplaced, "loop"))


def test_opened_images_are_streamed_and_loaded_ones_resident(kinds: dict[str, PictureSet]) -> None:
    assert [place_images(images, CPU).is_resident for images in kinds.values()] == [True, False]
    assert place_images(kinds["resident"], CPU) is resident(kinds["resident"], CPU)


@pytest.mark.parametrize("kind", ["resident", "cached"])
def test_replaced_images_follow_all_others(kinds: dict[str, PictureSet], kind: str) -> None:
    images = kinds[kind]
    black = np.zeros(images.shape, np.uint8)
    white = np.full(images.shape, 255, np.uint8)
    data, aliases = place_images(images, CPU).replace_images([{5: white}, {}, {7: black, 5: black}])
    assert aliases == [{5: 80}, {}, {7: 81, 5: 82}]
    pixels, labels = data.rows(torch.tensor([[80, 5], [81, 82]], dtype=torch.int32))
    assert tuple(pixels.shape) == (2, 2, 192)
    assert int(pixels[0, 0].min()) == 255
    assert [int(row_pixels.max()) for row_pixels in pixels[1]] == [0, 0]
    assert images.train.pixels(np.array([5])).reshape(-1).tolist() == pixels[0, 1].tolist()
    true = images.train.labels
    assert [[true[5], true[5]], [true[7], true[5]]] == labels.tolist()


def test_split_is_read_in_parts(kinds: dict[str, PictureSet]) -> None:
    test_images = kinds["resident"].test
    for images in kinds.values():
        data = place_images(images, CPU)
        assert data.test_count == 20
        parts = [data.test_rows(start, start + 8) for start in (0, 8, 16)]
        assert [len(pixels) for pixels, _ in parts] == [8, 8, 4]
        assert (
            test_images.pixels(np.arange(20)).reshape(20, -1).tolist()
            == torch.cat([part[0] for part in parts]).tolist()
        )
        assert test_images.labels.tolist() == torch.cat([part[1] for part in parts]).tolist()


def test_streamed_steps_are_not_captured(kinds: dict[str, PictureSet], monkeypatch: pytest.MonkeyPatch) -> None:
    images = kinds["cached"]
    spec = Spec(CrossEntropy(Architecture("mlp1", images.shape, 2)), Recipe(1, 16, 1e-3), images)
    members = [Member(seed, np.arange(8)) for seed in range(5)]

    def on_gpu(data: device_data.DeviceData) -> list[Strategy]:
        workload = Workload(spec, data, members, [{}] * 5)
        monkeypatch.setattr(Workload, "device", torch.device("cuda"))
        strategies = candidates(workload, 5)
        monkeypatch.undo()
        return strategies

    assert {strategy.name: strategy.captured for strategy in on_gpu(resident(images, CPU))} == {
        "loop": False,
        "graph": True,
        "stack": True,
    }
    assert {strategy.name: strategy.captured for strategy in on_gpu(stream_pictures(images, CPU))} == {
        "loop": False,
        "stack": False,
    }


def test_streamed_data_have_their_own_workload_name(kinds: dict[str, PictureSet]) -> None:
    images = kinds["cached"]
    spec = Spec(CrossEntropy(Architecture("mlp1", images.shape, 2)), Recipe(1, 16, 1e-3), images)
    names = []
    for data in (resident(images, CPU), stream_pictures(images, CPU)):
        names.append(Workload(spec, data, [], []).name)
    assert names == [names[0], f"{names[0]}, data streamed"]
