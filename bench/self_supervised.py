"""Speed of self-supervised encoder training, compared with a naive implementation.

    python -m bench.self_supervised [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

Both train the same network on the same images with VICReg, in minibatches of the same size and with the published
augmentation. The naive implementation draws the views image by image with torchvision's transforms, as DataLoader
workers do, and trains with lightly's loss and LARS. Drawing views is also measured separately.

On a CPU, both use one thread, and ratios compare median CPU times from the same run, followed by wall times.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.language_models import timed
from bench.measuring import Row, parse_options, publish
from measurement.report import measurement_facts
from tasks.datasets.boxed.partition import Partition, TrainingImages
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.dataset import Dataset
from tasks.self_supervised import views
from tasks.self_supervised.learners import learner
from tasks.self_supervised.networks import DEVIATION, MEAN, Network, initial_network
from tasks.self_supervised.pretraining_config import Augmentation, Pretraining, VICReg, encoder_of_pretraining
from tasks.self_supervised.pretraining_loop import Training
from tasks.self_supervised.training_set import Squares, TrainingSet, resident
from tasks.training.fit import read_losses
from tasks.worker import hardware


@dataclass(frozen=True)
class Size:
    backbone: str
    resolution: int
    images: int
    batch: int
    projector: tuple[int, ...]
    rounds: int

    def __str__(self) -> str:
        return f"{self.backbone}, {self.resolution} x {self.resolution}, {self.images} images, batch {self.batch}"


FULL = {
    "cpu": (
        Size("small-resnet#16", 32, 300, 100, (256, 256, 256), 9),
        Size("resnet18", 96, 32, 16, (512, 512, 512), 3),
    ),
    "cuda": (Size("resnet50", 224, 1024, 256, (8192, 8192, 8192), 3),),
}
TINY = (Size("small-resnet#4", 32, 20, 10, (16, 16), 1),)


class Bench:
    """A network for Engram and one for the rival, with the same images and settings."""

    def __init__(self, size: Size, device: torch.device) -> None:
        self.size = size
        self.device = device
        data = load_with_boxes(Dataset("digits-on-photos"))
        rows = np.arange(size.images)
        self.squares = data.squares(rows, size.resolution)
        self.config = Pretraining(
            TrainingImages(Dataset("digits-on-photos"), 0.0, Partition(), "A"),
            VICReg(),
            size.backbone,
            size.projector,
            Augmentation(size.resolution, side=size.resolution),
            batch=size.batch,
        )
        resident_squares = resident(Squares(data, rows, size.resolution), device)
        sizes = np.full((size.images, 2), size.resolution, np.int32)
        learning = learner(VICReg(), self.network(), size.projector, 0)
        self.training = Training(self.config, learning, TrainingSet(resident_squares, sizes, data.labels[rows]), device)
        self.rival = self.network().train()
        self.transforms = naive_views(self.config.augmentation)
        self.numbers = iter(range(10**6))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from lightly.loss import VICRegLoss
            from lightly.utils.lars import LARS
        self.loss = VICRegLoss()
        self.optimiser = LARS(self.rival.parameters(), lr=self.training.rate, momentum=0.9, weight_decay=1e-6)

    def network(self) -> Network:
        return initial_network(encoder_of_pretraining(self.config), 0, 0).to(self.device)

    def train(self) -> None:
        """Train for one epoch."""
        read_losses(self.training.take_steps(next(self.numbers) + 1), self.config.seed, 0)

    def views(self) -> None:
        """Draw the views for one epoch."""
        number = next(self.numbers)
        order = self.training._order(number)
        minibatches = self.training.images.squares.minibatches(order)
        for step, (places, squares) in enumerate(zip(order, minibatches, strict=True)):
            view_settings = views.draw_views(0, number, step, len(places))
            self.training._images(squares, self.training.sizes[torch.from_numpy(places)], view_settings)

    def naive(self) -> None:
        for first, second in self.naive_minibatches():
            self.optimiser.zero_grad()
            embeddings = self.rival(torch.cat([first, second]).to(self.device)).chunk(2)
            self.loss(*embeddings).backward()
            self.optimiser.step()

    def naive_minibatches(self) -> Iterator[tuple[Tensor, Tensor]]:
        from PIL import Image

        order = np.random.default_rng(next(self.numbers)).permutation(self.size.images)
        used_count = self.size.images // self.size.batch * self.size.batch
        for start in range(0, used_count, self.size.batch):
            images = []
            for row in order[start : start + self.size.batch]:
                images.append(Image.fromarray(self.squares[row]))
            first, second = (torch.stack([draw(image) for image in images]) for draw in self.transforms)
            yield first, second

    def naive_views(self) -> None:
        for _ in self.naive_minibatches():
            pass


def naive_views(config: Augmentation) -> tuple[Callable[[Any], Tensor], Callable[[Any], Tensor]]:
    """Return torchvision transforms for the first and the second view."""
    from torchvision import transforms as t

    kernel = max(3, config.resolution // 10 | 1)
    low, high = (config.resolution * end for end in views.SIGMAS)
    before = [
        t.RandomResizedCrop(config.resolution, (config.min_area, 1.0)),
        t.RandomHorizontalFlip(config.flip),
        t.RandomApply([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
        t.RandomGrayscale(config.grey),
    ]
    after = [t.ToTensor(), t.Normalize(MEAN, DEVIATION)]
    blur = t.GaussianBlur(kernel, (max(low, 1e-3), high))
    solarise = t.RandomSolarize(128, config.solarise)
    return t.Compose([*before, blur, *after]), t.Compose([*before, solarise, *after])


def rows(tiny: bool, device: torch.device) -> Iterator[Row]:
    """Measure images per second when training and when drawing views, for each size."""
    for size in TINY if tiny else FULL[device.type]:
        bench = Bench(size, device)
        image_count = size.images // size.batch * size.batch
        yield row(f"training, {size}", image_count, {"engram": bench.train, "rival": bench.naive}, size, device)
        yield row(
            f"two views alone, {size}", image_count, {"engram": bench.views, "rival": bench.naive_views}, size, device
        )


def row(subject: str, image_count: int, runs: dict[str, Callable[[], object]], size: Size, device: torch.device) -> Row:
    seconds = timed(runs, size.rounds, device)

    def describe(run: str) -> str:
        return ", ".join(f"{image_count / elapsed:,.0f} images/s ({clock})" for clock, elapsed in seconds[run].items())

    judged = next(iter(seconds["engram"]))
    ratio = seconds["rival"][judged] / seconds["engram"][judged]
    return Row(subject, describe("engram"), f"{describe('rival')}, torchvision's transforms and lightly", ratio)


def main() -> None:
    arguments = parse_options(__doc__)
    device = torch.device(arguments.device)
    import lightly
    import torchvision

    setting: dict[str, Any] = measurement_facts("digits-on-photos", device)
    setting["versions"] += f", torchvision {torchvision.__version__}, lightly {lightly.__version__}"
    with hardware.exactly(device):
        publish("Training encoders without labels", setting, list(rows(arguments.tiny, device)), arguments.out)


if __name__ == "__main__":
    main()
