"""How fast mlp1 trains here, beside the usual ways to write the same loop and beside the matrix products alone.

    python bench/training.py [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

Rivals: the same network and minibatches with autograd and torch.optim.Adam at its defaults, fed by

- tensors: DataLoader(TensorDataset) over float32 images that are already in memory;
- pictures: DataLoader over a data set that makes a PIL image and transforms.ToTensor() of each, as torchvision's do.

Every ratio is of two things measured in turn in the same run. On one thread it is the median CPU time of the rounds,
which a busy machine disturbs little. Over all cores it is the least wall time of the rounds, since what else runs
there only ever adds to it; our processes, one per core with a thread each, train a model each, while the rival's one
process has torch's default threads. The ceiling is the fastest
float32 matrix product (1024 x 1024) of the run; a step's share of it counts the products' arithmetic alone.
MNIST is read from ENGRAM_DATA where it is; random images of its shape take its place, and the speed is the same.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from torch import Tensor, nn

from bench.measuring import Row, Run, ceilings, clock_of, here, in_turn, options, publish, rate
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.models import mlp1
from tasks.training.loop import Model
from tasks.training.members import Member, Recipe
from tasks.training.resident import resident

BATCH, LEARNING_RATE = 128, 3e-4
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Epoch = Run  # trains one pass over the bench's rows


def images(count: int) -> tuple[str, Images]:
    """The first images of MNIST where it is, else random ones; and which of the two."""
    try:
        mnist = load(Dataset("mnist"))
        train, labels = mnist.train_images[:count], mnist.train_labels[:count]
        return "MNIST", Images(train, labels, mnist.test_images[:count], mnist.test_labels[:count], mnist.classes)
    except DatasetError:
        stream = np.random.default_rng(0)
        pixels = stream.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)
        labels = stream.integers(0, 10, count)
        return "random images of MNIST's shape", Images(pixels, labels, pixels, labels, 10)


def engram(data: Images, place: torch.device) -> Epoch:
    """Our loop, one epoch after another."""
    recipe = Recipe("mlp1", 1, 1, LEARNING_RATE, BATCH)
    with torch.inference_mode():
        model = Model(recipe, resident(data, place), Member(0, np.arange(len(data.train_images))))
    epochs = iter(range(1, sys.maxsize))

    def epoch() -> None:
        with torch.inference_mode():
            model.train(next(epochs))

    return epoch


def tensors(data: Images, place: torch.device) -> Epoch:
    """The usual loop over tensors in memory."""
    pixels = torch.from_numpy(data.train_images.reshape(len(data.train_images), -1) / np.float32(255))
    return naive(torch.utils.data.TensorDataset(pixels, torch.from_numpy(np.array(data.train_labels))), data, place)


class Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """What torchvision.datasets.MNIST does for an item."""

    def __init__(self, data: Images) -> None:
        from torchvision import transforms  # type: ignore[import-untyped]

        self.pixels, self.labels = np.array(data.train_images[..., 0]), data.train_labels.tolist()
        self.transform = transforms.Compose([transforms.ToTensor(), nn.Flatten(0)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.pixels[row])), self.labels[row]


def pictures(data: Images, place: torch.device) -> Epoch:
    """The usual loop over pictures."""
    return naive(Pictures(data), data, place)


def naive(rows: torch.utils.data.Dataset[Any], data: Images, place: torch.device) -> Epoch:
    """DataLoader, autograd, cross-entropy and Adam, all at their defaults."""
    widths = (math.prod(data.shape), *mlp1.HIDDEN)
    hidden = [module for a, b in pairwise(widths) for module in (nn.Linear(a, b), nn.ReLU())]
    network = nn.Sequential(*hidden, nn.Linear(widths[-1], data.classes)).to(place)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    loss_of = nn.CrossEntropyLoss()
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True)

    def epoch() -> None:
        for pixels, labels in loader:
            loss = loss_of(network(pixels.to(place)), labels.to(place))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return epoch


def gigaflops_of_a_step(inputs: int, classes: int) -> float:
    """The products of one minibatch: forward, slopes of the weights, and slopes of all rows but the first layer's."""
    sizes = [math.prod(shape) for name, shape in mlp1.shapes(inputs, classes).items() if name.endswith("weight")]
    return 2 * BATCH * (3 * sum(sizes) - sizes[0]) / 1e9


LOOPS = {"engram": engram, "tensors": tensors, "pictures": pictures}


def worker(pipe: Connection, loops: tuple[str, ...], count: int, threads: int | None) -> None:
    """A process that trains an epoch by one of its loops whenever it is told to, and ends when told to stop."""
    if threads:
        torch.set_num_threads(threads)
    data = images(count)[1]
    epochs = {loop: LOOPS[loop](data, torch.device("cpu")) for loop in loops}
    pipe.send("ready")
    while (loop := pipe.recv()) in epochs:
        epochs[loop]()
        pipe.send("done")


class Team:
    """Processes that train an epoch each at the same time."""

    def __init__(self, size: int, loops: tuple[str, ...], count: int, threads: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        ends = [context.Pipe() for _ in range(size)]
        self.pipes = [ours for ours, _ in ends]
        self.processes = [
            context.Process(target=worker, args=(theirs, loops, count, threads), daemon=True) for _, theirs in ends
        ]
        for process in self.processes:
            process.start()

    def gather(self, word: str) -> None:
        """Wait for that word of every process; RuntimeError where one has died."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            while not pipe.poll(0.1):
                if not process.is_alive():
                    raise RuntimeError(f"a measuring process ended with exit code {process.exitcode}")
            assert pipe.recv() == word

    def epoch(self, loop: str) -> None:
        self.tell(loop)
        self.gather("done")

    def tell(self, word: str) -> None:
        for pipe in self.pipes:
            pipe.send(word)

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
            process.join()


def over_all_cores(count: int, rounds: int) -> tuple[int, dict[str, float]]:
    """Number of our processes, and wall seconds per model-epoch of each loop."""
    for setting in THREAD_SETTINGS:  # the children begin with torch's own defaults
        os.environ.pop(setting, None)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rivals = ("tensors", "pictures")
    ours, theirs = Team(cores, ("engram",), count, threads=1), Team(1, rivals, count, threads=None)
    try:
        for team in (ours, theirs):
            team.gather("ready")
        runs: dict[str, Epoch] = {"engram": lambda: ours.epoch("engram")}
        runs |= {rival: partial(theirs.epoch, rival) for rival in rivals}
        seconds = in_turn(runs, rounds, time.perf_counter, min)
    finally:
        ours.close()
        theirs.close()
    return cores, {**seconds, "engram": seconds["engram"] / cores}


def one_thread(data: Images, place: torch.device, rounds: int) -> Iterator[Row]:
    """The rows that one thread (or one GPU) answers."""
    torch.set_num_threads(1)
    kind, clock = clock_of(place)
    runs = {"engram": engram(data, place), "tensors": tensors(data, place), **ceilings(place)}
    seconds = in_turn(runs, rounds, clock)
    steps = math.ceil(len(data.train_images) / BATCH)
    ours, rival = (seconds[name] / steps * 1e6 for name in ("engram", "tensors"))
    rates = {name: rate(seconds[name]) for name in runs if name not in LOOPS}
    work = gigaflops_of_a_step(math.prod(data.shape), data.classes) * len(data.train_images) / BATCH / steps
    yield Row(f"step, {kind}", f"{ours:.0f} us", f"{rival:.0f} us, tensors", rival / ours, 1.45, 1.8)
    best = max(rates, key=lambda name: rates[name])
    for name, reached in rates.items():
        note = " (the ceiling)" if name == best else ""
        share = work / (ours / 1e6) / reached
        yield Row(
            f"share of {name}'s products{note}",
            f"{work / ours * 1e6:.0f} GF/s",
            f"{reached:.0f} GF/s",
            share,
            *((0.7, 0.9) if name == best else (math.nan, math.nan)),
        )


def all_cores(count: int, rounds: int) -> Iterator[Row]:
    cores, seconds = over_all_cores(count, rounds)
    steps = math.ceil(count / BATCH)
    per_step = {loop: elapsed / steps * 1e6 for loop, elapsed in seconds.items()}
    for loop, must, aim in (("tensors", 2.0, 2.8), ("pictures", 6.0, 9.0)):
        ratio = per_step[loop] / per_step["engram"]
        rival = f"{per_step[loop]:.0f} us, {loop}"
        yield Row(f"step, {cores} cores, wall", f"{per_step['engram']:.0f} us", rival, ratio, must, aim)


def main() -> None:
    asked = options(__doc__)
    count, rounds = (BATCH * 4, 2) if asked.tiny else (BATCH * 60, 9)
    place = torch.device(asked.device)
    name, data = images(count)
    rows = list(one_thread(data, place, rounds))
    if place.type == "cpu":
        rows += all_cores(count, 3 * rounds)
    publish("Training mlp1", here(name, place), rows, asked.out)


if __name__ == "__main__":
    main()
