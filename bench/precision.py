"""The effect of lower precisions on classifiers, membership attacks and log p, compared with that of the seed.

    python -m bench.precision [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

Each network is trained with several seeds, in float32 and in bfloat16 with the same seeds. A difference is the mean
over seeds of bfloat16 minus float32, with its standard error. The ratio is the mean absolute difference of one seed,
divided by the standard deviation of float32 over seeds: below 1, the precision matters less than the choice of a seed.
The AUC is that of the log-odds of the label for training images against test images. Errors of log p refer to one
trained autoencoder, evaluated in each precision with the same codes; the reference is float64.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from bench.engine import VAE, VAE_BATCH, first
from bench.measuring import Row, parse_options, publish, write
from measurement.report import measurement_facts
from tasks.audits.membership.trainings import log_odds
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.models.counter_rng import member_key
from tasks.models.importance import Sampling, estimate_log_density
from tasks.models.inference import logits
from tasks.models.networks import Architecture
from tasks.numerics.precision import DecoderPrecision, Precision
from tasks.numerics.ranks import area_under_curve
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.density_objective import Elbo
from tasks.training.members import Member, Spec, Trained
from tasks.training.objective import Objective
from tasks.training.recipe import Recipe
from tasks.training.trainer import train_many
from tasks.worker import hardware

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
DECODERS: tuple[DecoderPrecision, ...] = ("float32", "tf32", "bfloat16")
SAMPLES = 256


@dataclass(frozen=True)
class Case:
    """A network, its data, and how many of its images it is trained and tested on."""

    network: str
    data: str
    examples: int
    epochs: int
    seeds: int
    tests: int = 1000
    batch: int = 64


CASES = (
    Case("mlp1", "mnist", 1000, 20, 8),
    Case("cnn1", "mnist", 400, 8, 5, 500),
    Case("cnn2", "cifar10", 400, 10, 5, 500),
    Case("resnet18", "cifar10", 128, 5, 3, 200),
)
AUTOENCODER = Case("vae", "mnist", 1000, 15, 4, 500, VAE_BATCH)


def train(learning: Objective, data: Images, case: Case, precision: Precision, device: torch.device) -> list[Trained]:
    """Return a model of each seed."""
    recipe = Recipe(case.epochs, case.batch, 1e-3, precision=precision)
    members = [Member(seed, np.arange(case.examples)) for seed in range(case.seeds)]
    outcomes = dict(train_many(Spec(learning, recipe, data), members, device))
    models = []
    for seed in range(case.seeds):
        outcome = outcomes[seed]
        if isinstance(outcome, Exception):
            raise outcome
        models.append(outcome)
    return models


def compare(subject: str, values: dict[Precision, list[float]], seconds: dict[Precision, float]) -> Row:
    """Return the row of one quantity, measured with the same seeds in both precisions."""
    exact = np.array(values["float32"])
    differences = np.array(values["bfloat16"]) - exact
    spread = exact.std(ddof=1)
    error = differences.std(ddof=1) / math.sqrt(len(differences))
    times = seconds["bfloat16"] / seconds["float32"]
    return Row(
        subject,
        f"bfloat16: {differences.mean():+.4f} (standard error {error:.4f}), {times:.2f}x the time",
        f"float32: {exact.mean():.4f} (standard deviation over {len(exact)} seeds {spread:.4f})",
        float(np.abs(differences).mean() / spread) if spread else math.nan,
    )


def classifier_rows(case: Case, data: Images, device: torch.device) -> Iterator[Row]:
    network = Architecture(case.network, data.shape, data.classes)
    found: dict[str, dict[Precision, list[float]]] = {}
    seconds: dict[Precision, float] = {}
    for precision in PRECISIONS:
        start = time.process_time()
        models = train(CrossEntropy(network), data, case, precision, device)
        seconds[precision] = time.process_time() - start
        for model in models:
            weights = {name: values.astype(np.float32) for name, values in model.weights.items()}
            outputs = [logits(network, [weights], images)[0] for images in (data.train_images, data.test_images)]
            scores = [log_odds(outputs[0], data.train_labels), log_odds(outputs[1], data.test_labels)]
            values = {
                "test accuracy": float((outputs[1].argmax(1) == data.test_labels).mean()),
                "test loss, nats": model.history[-1].validation_loss,
                "training loss, nats": model.history[-1].train_loss,
                "AUC of a loss attack": area_under_curve(*scores),
            }
            for name, value in values.items():
                found.setdefault(name, {}).setdefault(precision, []).append(value)
    subject = f"{case.network}, {case.examples} images of {case.data}, {case.epochs} epochs"
    for name, by_precision in found.items():
        yield compare(f"{subject}: {name}", by_precision, seconds)


def density_rows(case: Case, data: Images, device: torch.device, points: int) -> Iterator[Row]:
    found: dict[str, dict[Precision, list[float]]] = {}
    seconds: dict[Precision, float] = {}
    splits = {"training": data.train_images, "test": data.test_images}
    kept = None
    for precision in PRECISIONS:
        start = time.process_time()
        models = train(Elbo(VAE), data, case, precision, device)
        seconds[precision] = time.process_time() - start
        kept = kept or models[0]
        for seed, model in enumerate(models):
            means = {}
            for name, images in splits.items():
                means[name] = float(log_p(model, images[:points], seed, device, Sampling(SAMPLES)).mean())
            means["training - test"] = means["training"] - means["test"]
            for name, value in means.items():
                found.setdefault(f"log p, {name}, nats", {}).setdefault(precision, []).append(value)
    subject = f"vae, {case.examples} images of {case.data}, {case.epochs} epochs"
    for name, by_precision in found.items():
        yield compare(f"{subject}: {name}", by_precision, seconds)
    assert kept is not None
    yield from decoder_rows(kept, data, device, points)


def decoder_rows(model: Trained, data: Images, device: torch.device, points: int) -> Iterator[Row]:
    images = data.train_images[:points]
    sampling = Sampling(SAMPLES)
    exact = log_p(model, images, 0, device, sampling, torch.float64)
    other_codes = log_p(model, images, 0, device, replace(sampling, samples=2 * SAMPLES), torch.float64)
    monte_carlo = float((other_codes - exact).std()) * math.sqrt(2)
    for precision in DECODERS:
        errors = log_p(model, images, 0, device, replace(sampling, precision=precision)) - exact
        rms = float(errors.square().mean().sqrt())
        yield Row(
            f"log p of {points} points in {precision}: error",
            f"{rms:.1e} nats (root mean square), {float(errors.abs().max()):.1e} at most",
            f"Monte Carlo deviation of {SAMPLES} codes: about {monte_carlo:.2f} nats",
            rms / monte_carlo,
        )


def log_p(
    model: Trained,
    images: NDArray[np.uint8],
    seed: int,
    device: torch.device,
    sampling: Sampling,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    tensors = {}
    for name, values in model.weights.items():
        tensors[name] = torch.from_numpy(np.array(values))[None].to(device, dtype)
    pixels = torch.from_numpy(images.reshape(len(images), -1).copy()).to(device)
    rows = torch.arange(len(images), device=device)
    members = torch.tensor([member_key(seed)], device=device)
    with hardware.exactly(device):
        return estimate_log_density(VAE, tensors, pixels, rows, members, sampling).log_p[0].cpu()


def images_of(case: Case) -> Images:
    """Return the training and test images of a case, or digits of their shape if the data set is not available."""
    try:
        data = load(Dataset(case.data))
    except DatasetError:
        data = load(Dataset("digits#28x28" if case.data == "mnist" else "digits#32x32#rgb"))
    train = first(data, case.examples)
    tests = slice(case.tests)
    return Images(
        train.train_images, train.train_labels, data.test_images[tests], data.test_labels[tests], data.classes
    )


def measure(cases: Sequence[Case], autoencoder: Case, points: int, device: torch.device) -> Iterator[Row]:
    """Yield the rows of all cases, as they are measured."""
    yield from density_rows(autoencoder, images_of(autoencoder), device, points)
    for case in cases:
        yield from classifier_rows(case, images_of(case), device)


def main() -> None:
    arguments = parse_options(__doc__)
    device = torch.device(arguments.device)
    cases: Sequence[Case] = CASES
    autoencoder = AUTOENCODER
    points = 64
    if arguments.tiny:
        cases = [replace(case, examples=40, epochs=1, seeds=2, tests=20) for case in CASES[:2]]
        autoencoder = replace(AUTOENCODER, examples=40, epochs=1, seeds=2, tests=20)
        points = 2
    title = "Errors of lower precisions"
    facts = measurement_facts("MNIST and CIFAR-10", device)
    rows: list[Row] = []
    for row in measure(cases, autoencoder, points, device):
        rows.append(row)
        write(title, facts, rows, arguments.out)  # so that an interrupted run keeps its rows
    publish(title, facts, rows, arguments.out)


if __name__ == "__main__":
    main()
