"""How fast mlp1 trains on a CPU, beside the usual ways to write the same loop and beside the matrix products alone.

Rivals: the same network and minibatches with autograd and torch.optim.Adam at its defaults, fed by

- tensors: DataLoader(TensorDataset) over float32 images that are already in memory;
- pictures: DataLoader over a data set that makes a PIL image and transforms.ToTensor() of each, as torchvision's do.

On one thread a ratio is of two median CPU times of the rounds, which a busy machine disturbs little. Over all cores it
is the least wall time of the rounds, since what else runs there only ever adds to it; our processes, one per core with
a thread each, train a model each, while the rival's one process has torch's default threads. A step's share of the
ceiling counts the products' arithmetic alone.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.engine import BATCH, LEARNING_RATE, classifiers, epochs, seated
from bench.measuring import Row, Run, clock_of, in_turn
from measurement.images import images
from measurement.machine import ceilings, rate
from tasks.datasets.images import Images
from tasks.models.networks import HIDDEN, Architecture
from tasks.training.strategies import Strategy

THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CPU = torch.device("cpu")
Epoch = Run  # trains one pass over the bench's rows


def engram(data: Images, place: torch.device) -> Epoch:
    """The engine, one model after another."""
    (stack,) = seated(classifiers(data, place), Strategy("loop"))
    return epochs(stack)


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
    widths = (math.prod(data.shape), *HIDDEN)
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


def gigaflops_of_a_step(data: Images) -> float:
    """The products of one minibatch: forward, and the gradients of weights and of all rows but the first layer's."""
    weights = Architecture("mlp1", data.shape, data.classes).weights
    sizes = [math.prod(weight.shape) for name, weight in weights.items() if name.endswith("weight")]
    return 2 * BATCH * (3 * sum(sizes) - sizes[0]) / 1e9


LOOPS = {"engram": engram, "tensors": tensors, "pictures": pictures}


def worker(pipe: Connection, loops: tuple[str, ...], count: int, threads: int | None) -> None:
    """A process that trains an epoch by one of its loops whenever it is told to, and ends when told to stop."""
    if threads:
        torch.set_num_threads(threads)
    data = images(count)[1]
    trained = {loop: LOOPS[loop](data, CPU) for loop in loops}
    pipe.send("ready")
    while (loop := pipe.recv()) in trained:
        trained[loop]()
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


def one_thread(data: Images, rounds: int) -> Iterator[Row]:
    """The rows that one thread answers."""
    torch.set_num_threads(1)
    kind, clock = clock_of(CPU)
    runs = {"engram": engram(data, CPU), "tensors": tensors(data, CPU), **ceilings(CPU)}
    seconds = in_turn(runs, rounds, clock)
    steps = math.ceil(len(data.train_images) / BATCH)
    ours, rival = (seconds[name] / steps * 1e6 for name in ("engram", "tensors"))
    rates = {name: rate(seconds[name]) for name in runs if name not in LOOPS}
    work = gigaflops_of_a_step(data) * len(data.train_images) / BATCH / steps
    yield Row(f"mlp1's step, {kind}", f"{ours:.0f} us", f"{rival:.0f} us, tensors", rival / ours, 1.45, 1.8)
    best = max(rates, key=lambda name: rates[name])
    for name, reached in rates.items():
        note = " (the ceiling)" if name == best else ""
        yield Row(
            f"mlp1's step: share of {name}'s products{note}",
            f"{work / ours * 1e6:.0f} GF/s",
            f"{reached:.0f} GF/s",
            work / (ours / 1e6) / reached,
            *((0.7, 0.9) if name == best else (math.nan, math.nan)),
        )


def all_cores(count: int, rounds: int) -> Iterator[Row]:
    """The rows that all cores answer."""
    cores, seconds = over_all_cores(count, rounds)
    steps = math.ceil(count / BATCH)
    per_step = {loop: elapsed / steps * 1e6 for loop, elapsed in seconds.items()}
    for loop, must, aim in (("tensors", 2.0, 2.8), ("pictures", 6.0, 9.0)):
        ratio = per_step[loop] / per_step["engram"]
        rival = f"{per_step[loop]:.0f} us, {loop}"
        yield Row(f"mlp1's step, {cores} cores, wall", f"{per_step['engram']:.0f} us", rival, ratio, must, aim)
