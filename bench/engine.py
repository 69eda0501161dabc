"""The training engine used by audits, set up for benchmarks on MNIST-shaped images."""

from __future__ import annotations

from typing import get_args

import numpy as np
import torch

from bench.measuring import Run
from tasks.datasets.images import Images
from tasks.models.networks import Architecture
from tasks.models.vae import mnist
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.density_objective import Elbo
from tasks.training.device_data import resident
from tasks.training.members import Member, Spec
from tasks.training.objective import Objective
from tasks.training.recipe import Precision, Recipe
from tasks.training.stack import Stack
from tasks.training.strategies import Strategy, Workload, steps_of, stream, synchronise

BATCH = 128  # for classifiers
LEARNING_RATE = 3e-4  # as published
VAE_BATCH = 64
VAE_LEARNING_RATE = 1e-3
VAE = mnist()
STEPS = 20  # of a stack in one timed run
FEW_STEPS = 2  # in a tiny run, which only tests the code

# Convolutional networks, the images they are for, and bounds on the seconds of one race.
CONVOLUTIONAL = {
    "cnn1": ((28, 28, 1), 30),
    "cnn2": ((32, 32, 3), 40),
    "resnet18": ((32, 32, 3), 60),
    "airbench": ((32, 32, 3), 40),
}
PRECISIONS = tuple(precision for precision in get_args(Precision) if precision != "float64")


def first(data: Images, count: int) -> Images:
    """Return the first `count` training images and at most as many test images."""
    train = slice(count)
    test = slice(min(count, len(data.test_images)))
    return Images(
        data.train_images[train], data.train_labels[train], data.test_images[test], data.test_labels[test], data.classes
    )


def random_images(shape: tuple[int, int, int]) -> Images:
    """Return four minibatches of random images of this shape."""
    stream = np.random.default_rng(0)
    pixels = stream.integers(0, 256, (4 * BATCH, *shape), dtype=np.uint8)
    labels = stream.integers(0, 10, len(pixels))
    return Images(pixels, labels, pixels[:BATCH], labels[:BATCH], 10)


def classifiers(
    data: Images,
    device: torch.device,
    network: str = "mlp1",
    members: int = 1,
    epochs: int = 1,
    batch: int = BATCH,
    precision: Precision = "float32",
) -> Workload:
    """Return classifiers with different seeds, trained on all images."""
    learning = CrossEntropy(Architecture(network, data.shape, data.classes))
    recipe = Recipe(epochs, batch, LEARNING_RATE, patience=10, precision=precision)
    return workload(learning, recipe, data, device, members)


def autoencoders(data: Images, device: torch.device) -> Workload:
    """Return the fully connected autoencoder from the density audit."""
    return workload(Elbo(VAE), Recipe(1, VAE_BATCH, VAE_LEARNING_RATE), data, device, 1)


def workload(learning: Objective, recipe: Recipe, data: Images, device: torch.device, members: int) -> Workload:
    rows = np.arange(len(data.train_images))
    group = [Member(seed, rows) for seed in range(members)]
    replaced_data, aliases = resident(data, device).replace_images([member.replaced for member in group])
    return Workload(Spec(learning, recipe, data), replaced_data, group, aliases)


def seated(workload: Workload, strategy: Strategy) -> list[Stack]:
    """Return the stacks of a strategy with a member in every slot."""
    stacks = workload.stacks(strategy)
    for number, stack in enumerate(stacks):
        for slot in range(strategy.places):
            index = (number * strategy.places + slot) % len(workload.members)
            stack.enter(slot, index, workload.members[index])
    return stacks


def epochs(stack: Stack) -> Run:
    """Return a run that trains for one epoch without validation."""

    def epoch() -> None:
        for padded in stack.begin():
            stack.step(padded)

    return epoch


def steps(workload: Workload, stacks: list[Stack], count: int = STEPS) -> Run:
    """Return a run that takes `count` steps with every model."""
    padded = [stack.begin()[0] for stack in stacks]
    synchronise(workload.device)  # the steps use separate streams, which do not wait for earlier work
    run = steps_of(stacks, [stream(workload.device) for _ in stacks], any(padded))

    def several() -> None:
        for _ in range(count):
            run()

    return several
