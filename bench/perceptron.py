"""Speed of training mlp1 on a CPU, compared with typical training loops and with the matrix products alone.

The rivals use the same network and minibatches with autograd and torch.optim.Adam at its defaults, and

- tensors: DataLoader(TensorDataset) over float32 images in memory;
- PIL: DataLoader over a data set that creates a PIL image of each item and applies transforms.ToTensor(), as in
  torchvision.

On one thread, a ratio compares median CPU times over the rounds, which are little affected by other processes. On all
cores, it compares the shortest wall times over the rounds, because other processes can only increase wall time. Engram
runs one process per core, each with one thread and one model; the rival runs one process with torch's default threads.
A step's share of the ceiling counts only matrix products.
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
from bench.measuring import Row, Run, clock_for, in_turn
from measurement.images import images
from measurement.machine import ceilings, rate
from tasks.datasets.images import Images
from tasks.models.networks import HIDDEN, Architecture
from tasks.training.strategies import Strategy

THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CPU = torch.device("cpu")
Epoch = Run  # trains one epoch


def engram(data: Images, device: torch.device) -> Epoch:
    """Return an epoch of Engram's engine with one model."""
    (stack,) = seated(classifiers(data, device), Strategy("loop"))
    return epochs(stack)


def tensors(data: Images, device: torch.device) -> Epoch:
    """Return the rival loop over tensors in memory."""
    pixels = torch.from_numpy(data.train_images.reshape(len(data.train_images), -1) / np.float32(255))
    return naive(torch.utils.data.TensorDataset(pixels, torch.from_numpy(np.array(data.train_labels))), data, device)


class PilImages(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Items as produced by torchvision.datasets.MNIST."""

    def __init__(self, data: Images) -> None:
        from torchvision import transforms  # type: ignore[import-untyped]

        self.pixels = np.array(data.train_images[..., 0])
        self.labels = data.train_labels.tolist()
        self.transform = transforms.Compose([transforms.ToTensor(), nn.Flatten(0)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.pixels[row])), self.labels[row]


def pil_images(data: Images, device: torch.device) -> Epoch:
    """Return the rival loop over PIL images."""
    return naive(PilImages(data), data, device)


def naive(rows: torch.utils.data.Dataset[Any], data: Images, device: torch.device) -> Epoch:
    """Return an epoch with DataLoader, autograd, cross-entropy and Adam, all at their defaults."""
    widths = (math.prod(data.shape), *HIDDEN)
    hidden = [module for a, b in pairwise(widths) for module in (nn.Linear(a, b), nn.ReLU())]
    network = nn.Sequential(*hidden, nn.Linear(widths[-1], data.classes)).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    loss_of = nn.CrossEntropyLoss()
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True)

    def epoch() -> None:
        for pixels, labels in loader:
            loss = loss_of(network(pixels.to(device)), labels.to(device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return epoch


def gigaflops_of_a_step(data: Images) -> float:
    """Return the GFLOPs of one step: forward pass, weight gradients, and input gradients except in the first layer."""
    weights = Architecture("mlp1", data.shape, data.classes).weights
    sizes = []
    for name, weight in weights.items():
        if name.endswith("weight"):
            sizes.append(math.prod(weight.shape))
    return 2 * BATCH * (3 * sum(sizes) - sizes[0]) / 1e9


LOOPS = {"engram": engram, "tensors": tensors, "PIL": pil_images}


def worker(pipe: Connection, loops: tuple[str, ...], count: int, threads: int | None) -> None:
    """Train an epoch with each loop named by the pipe. End at any other word."""
    if threads:
        torch.set_num_threads(threads)
    data = images(count)[1]
    training_loops = {loop: LOOPS[loop](data, CPU) for loop in loops}
    pipe.send("ready")
    while (loop := pipe.recv()) in training_loops:
        training_loops[loop]()
        pipe.send("done")


class Team:
    """Processes that each train an epoch at the same time."""

    def __init__(self, size: int, loops: tuple[str, ...], count: int, threads: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        ends = [context.Pipe() for _ in range(size)]
        self.pipes = [own_end for own_end, _ in ends]
        self.processes = [
            context.Process(target=worker, args=(process_end, loops, count, threads), daemon=True)
            for _, process_end in ends
        ]
        for process in self.processes:
            process.start()

    def gather(self, word: str) -> None:
        """Wait for this word from every process. Raises RuntimeError if a process has ended."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            while not pipe.poll(0.1):
                if not process.is_alive():
                    raise RuntimeError(f"a measuring process ended with exit code {process.exitcode}")
            assert pipe.recv() == word

    def epoch(self, loop: str) -> None:
        self.send(loop)
        self.gather("done")

    def send(self, word: str) -> None:
        for pipe in self.pipes:
            pipe.send(word)

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
            process.join()


def over_all_cores(count: int, rounds: int) -> tuple[int, dict[str, float]]:
    """Return the number of Engram's processes, and the wall seconds per model-epoch of each loop."""
    for setting in THREAD_SETTINGS:  # the children then start with torch's own defaults
        os.environ.pop(setting, None)
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    rivals = ("tensors", "PIL")
    engram_team = Team(cores, ("engram",), count, threads=1)
    rival_team = Team(1, rivals, count, threads=None)
    try:
        for team in (engram_team, rival_team):
            team.gather("ready")
        runs: dict[str, Epoch] = {"engram": lambda: engram_team.epoch("engram")}
        runs |= {rival: partial(rival_team.epoch, rival) for rival in rivals}
        seconds = in_turn(runs, rounds, time.perf_counter, min)
    finally:
        engram_team.close()
        rival_team.close()
    return cores, {**seconds, "engram": seconds["engram"] / cores}


def one_thread(data: Images, rounds: int) -> Iterator[Row]:
    """Measure training on one thread."""
    torch.set_num_threads(1)
    kind, clock = clock_for(CPU)
    runs = {"engram": engram(data, CPU), "tensors": tensors(data, CPU), **ceilings(CPU)}
    seconds = in_turn(runs, rounds, clock)
    steps = math.ceil(len(data.train_images) / BATCH)
    engram_time = seconds["engram"] / steps * 1e6
    rival = seconds["tensors"] / steps * 1e6
    rates = {name: rate(seconds[name]) for name in runs if name not in LOOPS}
    work = gigaflops_of_a_step(data) * len(data.train_images) / BATCH / steps
    yield Row(
        f"mlp1's step, {kind}", f"{engram_time:.0f} us", f"{rival:.0f} us, tensors", rival / engram_time, 1.45, 1.8
    )
    best = max(rates, key=lambda name: rates[name])
    for name, ceiling in rates.items():
        note = " (the ceiling)" if name == best else ""
        yield Row(
            f"mlp1's step: share of {name}'s products{note}",
            f"{work / engram_time * 1e6:.0f} GF/s",
            f"{ceiling:.0f} GF/s",
            work / (engram_time / 1e6) / ceiling,
            *((0.7, 0.9) if name == best else (math.nan, math.nan)),
        )


def all_cores(count: int, rounds: int) -> Iterator[Row]:
    """Measure training on all cores."""
    cores, seconds = over_all_cores(count, rounds)
    steps = math.ceil(count / BATCH)
    per_step = {loop: elapsed / steps * 1e6 for loop, elapsed in seconds.items()}
    for loop, required, target in (("tensors", 2.0, 2.8), ("PIL", 6.0, 9.0)):
        ratio = per_step[loop] / per_step["engram"]
        rival = f"{per_step[loop]:.0f} us, {loop}"
        yield Row(f"mlp1's step, {cores} cores, wall", f"{per_step['engram']:.0f} us", rival, ratio, required, target)
