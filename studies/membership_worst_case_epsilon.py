"""Which lower bound on epsilon do private trainings show from initial weights chosen by the auditor?

    python -m studies membership_worst_case_epsilon [--tiny] [--seed 35301] [--models 200] [--epsilon 10] [--out FILE]

The threat model is that of Annamalai & De Cristofaro 2024, "Nearly tight black-box auditing of differentially private
machine learning". The auditor chooses the initial weights and one record, a blank image. A fair coin decides whether it
is included in the training data of each model. The auditor sees only the loss of this record under the trained model.
With initial weights trained on other images, the gradients of the 1,000 records are small and do not hide the gradient
of the blank image. The paper reports 7.21 on MNIST at epsilon 10. The network here is smaller, with one hidden layer of
32 units. Every step of DP-SGD uses all images, so noise is the only randomness.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from measurement.images import images
from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.membership.measures.epsilon import AtDelta, epsilon
from tasks.audits.membership.trainings import CANARIES, log_odds
from tasks.training.dp_sgd import noise, spent
from tasks.training.recipe import Privacy

RECORDS = 1_000
HIDDEN = 32
STEPS = 100
RATE = 0.5
LABEL = 9
PRETRAINING = 300  # Adam steps on images outside the records
TOGETHER = 20  # models per matrix product
Weights = list[Tensor]  # weights and biases of both layers: (models, rows, units), (models, 1, units), ...


def initial_weights(seed: int, models: int) -> Weights:
    stream = torch.Generator().manual_seed(seed)
    shapes = ((784, HIDDEN), (1, HIDDEN), (HIDDEN, 10), (1, 10))
    tensors = []
    for shape in shapes:
        tensors.append(torch.randn(*shape, generator=stream) * (2 / shape[0]) ** 0.5)
    weights = []
    for part in tensors:
        weights.append((part if len(part) > 1 else torch.zeros_like(part)).expand(models, -1, -1).clone())
    return weights


def forward(weights: Weights, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hidden units and the logits, each (models, images, units)."""
    hidden = torch.relu(pixels @ weights[0] + weights[1])
    return hidden, hidden @ weights[2] + weights[3]


def pretrain(pixels: Tensor, labels: Tensor, seed: int) -> Weights:
    """Train weights on images outside the records."""
    weights = [part.requires_grad_() for part in initial_weights(seed, 1)]
    optimiser = torch.optim.Adam(weights, 3e-3)
    for _ in range(PRETRAINING):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(forward(weights, pixels)[1][0], labels).backward()
        optimiser.step()
    return [part.detach() for part in weights]


def train_private(
    weights: Weights, pixels: Tensor, labels: Tensor, inside: Tensor, sigma: float, stream: torch.Generator
) -> None:
    """Run DP-SGD in place, with gradients clipped to norm 1. Only models in `inside` train on the last image."""
    truth = torch.nn.functional.one_hot(labels, 10)
    squares = (pixels**2).sum(1) + 1
    counted = torch.ones(len(inside), len(labels))
    counted[:, -1] = inside.float()
    for _ in range(STEPS):
        hidden, scores = forward(weights, pixels)
        above = torch.softmax(scores, dim=2) - truth
        below = (above @ weights[2].transpose(1, 2)) * (hidden > 0)
        # The norm of an outer product of two vectors is the product of their norms.
        norms = ((below**2).sum(2) * squares + (above**2).sum(2) * ((hidden**2).sum(2) + 1)).sqrt()
        share = (counted / norms.clamp(min=1)).unsqueeze(2)
        above = above * share
        below = below * share
        sums = [
            pixels.T @ below,
            below.sum(1, keepdim=True),
            hidden.transpose(1, 2) @ above,
            above.sum(1, keepdim=True),
        ]
        for part, total in zip(weights, sums, strict=True):
            part -= RATE / len(labels) * (total + sigma * torch.randn(part.shape, generator=stream))


def canary_tables(
    start: Weights | None, pixels: Tensor, labels: Tensor, models: int, privacy: Privacy, seed: int
) -> Iterator[tuple[pa.Table, float]]:
    """Yield each model's answer for the record (CANARIES), and its accuracy on other images.

    If `start` is None, each model has fresh initial weights.
    """
    sigma = noise(privacy, 1, STEPS)
    accounted = spent(((sigma, 1.0, STEPS),), privacy.delta)
    stream = torch.Generator().manual_seed(seed)
    coins = np.random.default_rng(seed).random(models) < 0.5
    for first in range(0, models, TOGETHER):
        inside = coins[first : first + TOGETHER]
        if start is None:
            initial = initial_weights(seed, len(inside))
        else:
            initial = [part.repeat(len(inside), 1, 1) for part in start]
        train_private(initial, pixels, labels, torch.from_numpy(inside), sigma, stream)
        scores = forward(initial, pixels)[1]
        for number, (is_inside, score) in enumerate(zip(inside, scores, strict=True), first):
            odds = log_odds(score[-1:].numpy(), np.array([LABEL]))[0]
            row = {"model": number, "row": 0, "label": LABEL, "inside": bool(is_inside), "log_odds": odds}
            accuracy = float((score[:-1].argmax(1) == labels[:-1]).float().mean())
            yield pa.Table.from_pylist([row | {"spent": accounted}], CANARIES), accuracy


def markdown(cells: dict[str, tuple[list[dict[str, object]], float]]) -> Iterator[str]:
    names = [str(item["bound"]) for item in next(iter(cells.values()))[0]]
    yield f"| initial weights | accountant | {' | '.join(names)} | AUC | accuracy on the records |"
    yield "|---" * (4 + len(names)) + "|"
    for name, (results, accuracy) in cells.items():
        bounds = " | ".join(f"{item['epsilon']:.2f}" for item in results)
        yield f"| {name} | {results[0]['spent']:.2f} | {bounds} | {results[0]['auc']:.3f} | {100 * accuracy:.0f} % |"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=35301, help="of the initial weights, coins and noise")
    parser.add_argument("--models", type=int, default=200, help="trainings of each kind")
    parser.add_argument("--epsilon", type=float, default=10.0, help="of the trainings, by the accountant")
    options = parser.parse_args(arguments)
    models = 8 if options.tiny else options.models
    start_time = time.process_time()
    name, data = images(11 * RECORDS)
    pixels = torch.from_numpy(data.train_images.reshape(len(data.train_images), -1) / np.float32(255))
    labels = torch.from_numpy(data.train_labels.astype(np.int64))
    records = torch.cat([pixels[:RECORDS], torch.zeros(1, 784)]), torch.cat([labels[:RECORDS], torch.tensor([LABEL])])
    weights = pretrain(pixels[RECORDS:], labels[RECORDS:], options.seed)
    privacy = Privacy(options.epsilon)
    cells = {}
    for kind, start in (("trained on 10,000 other images", weights), ("fresh, the same for all", None)):
        tables, accuracies = zip(*canary_tables(start, *records, models, privacy, options.seed), strict=True)
        results = epsilon(AtDelta(privacy.delta), tables).to_pylist()
        cells[kind] = results, float(np.mean(accuracies))
        print(kind, results, file=sys.stderr, flush=True)
    setting = measurement_facts(name, torch.device("cpu"))
    setting["trainings"] = f"{models} of each kind, {STEPS} steps on all of {RECORDS} images, delta {privacy.delta:g}"
    setting["seed"] = str(options.seed)
    setting["cost"] = f"{time.process_time() - start_time:.0f} s of a core"
    table = "\n".join(markdown(cells)) + "\n"
    publish_counts("Lower bounds on epsilon, from weights chosen by the auditor", setting, table, options.out)
