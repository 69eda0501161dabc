"""What every bench of training measures: the engine that audits train with, on images of MNIST's shape."""

from __future__ import annotations

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
from tasks.training.recipe import Recipe
from tasks.training.stack import Stack
from tasks.training.strategies import Strategy, Workload, steps_of, stream, synchronise

BATCH, LEARNING_RATE = 128, 3e-4  # of classifiers, as published
VAE_BATCH, VAE_LEARNING_RATE = 64, 1e-3
VAE = mnist()
STEPS = 20  # that a run of a stack takes
FEW_STEPS = 2  # where only whether it runs is asked


def first(data: Images, count: int) -> Images:
    """The same with its first rows alone."""
    train, test = slice(count), slice(min(count, len(data.test_images)))
    return Images(
        data.train_images[train], data.train_labels[train], data.test_images[test], data.test_labels[test], data.classes
    )


def corner(data: Images, side: int) -> Images:
    """The same with so many rows and columns of each image alone."""
    train, test = (images[:, :side, :side] for images in (data.train_images, data.test_images))
    return Images(train, data.train_labels, test, data.test_labels, data.classes)


def classifiers(
    data: Images, place: torch.device, network: str = "mlp1", members: int = 1, epochs: int = 1, batch: int = BATCH
) -> Workload:
    """Members of a network that classifies, each of a seed of its own, on all training images."""
    learning = CrossEntropy(Architecture(network, data.shape, data.classes))
    return workload(learning, Recipe(epochs, batch, LEARNING_RATE, patience=10), data, place, members)


def autoencoders(data: Images, place: torch.device) -> Workload:
    """The fully connected autoencoder of density."""
    return workload(Elbo(VAE), Recipe(1, VAE_BATCH, VAE_LEARNING_RATE), data, place, 1)


def workload(learning: Objective, recipe: Recipe, data: Images, place: torch.device, members: int) -> Workload:
    rows = np.arange(len(data.train_images))
    group = [Member(seed, rows) for seed in range(members)]
    there, aliases = resident(data, place).replace_images([member.replaced for member in group])
    return Workload(Spec(learning, recipe, data), there, group, aliases)


def seated(workload: Workload, way: Strategy) -> list[Stack]:
    """The way's stacks with a member in every place."""
    stacks = workload.stacks(way)
    for number, stack in enumerate(stacks):
        for place in range(way.places):
            index = (number * way.places + place) % len(workload.members)
            stack.enter(place, index, workload.members[index])
    return stacks


def epochs(stack: Stack) -> Run:
    """Trains one pass over the members' rows, again and again; nothing is validated."""

    def epoch() -> None:
        for padded in stack.begin():
            stack.step(padded)

    return epoch


def steps(workload: Workload, stacks: list[Stack], count: int = STEPS) -> Run:
    """Takes so many steps with every model."""
    padded = [stack.begin()[0] for stack in stacks]
    synchronise(workload.device)  # the steps have streams of their own, which do not wait for what has been said before
    run = steps_of(stacks, [stream(workload.device) for _ in stacks], any(padded))

    def several() -> None:
        for _ in range(count):
            run()

    return several
