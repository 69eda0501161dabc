"""How fast the fully connected autoencoder of density trains here and log p is estimated, beside the usual ways.

    python bench/generation.py [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

Rivals in training: the same network, minibatches and loss with autograd and torch.optim.Adam at its defaults, fed by

- tensors: DataLoader(TensorDataset) over padded float32 images that are already in memory;
- pictures: DataLoader over a data set that makes a PIL image and transforms.Pad and ToTensor() of each.

Both draw a minibatch's binary pixels with torch.bernoulli. Rival in estimation: the paper's form, which decodes all
codes of some points and sums torch.distributions' log densities; once with as few points at a time as it is fastest
with, once with a minibatch of them. Errors are the largest of these points against the same codes in float64.

On a CPU everything has one thread, and every ratio is of two median CPU times of the same run. The ceiling is the
fastest float32 matrix product (1024 x 1024) of the run; a share of it counts the products' arithmetic alone. On a GPU
stacks of models are timed per model and step, and estimates by the precision of the decoder's products.
MNIST is read from ENGRAM_DATA where it is; random images of its shape take its place, and the speed is the same.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from tasks.training.adam import Adam
from torch import Tensor, nn
from torch.distributions import Bernoulli, Normal
from torch.nn import functional

from bench.measuring import Row, Run, ceilings, clock_of, here, in_turn, options, publish, rate
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.models.draws import Draws, step_keys
from tasks.models.importance import Sampling, log_p
from tasks.models.layers import Mode, initial
from tasks.models.pixels import fixed, observation_keys
from tasks.models.vae import mnist
from tasks.training.flat import Flat
from tasks.training.generation import Generation
from tasks.training.learning import Batch

BATCH, LEARNING_RATE, SAMPLES, FEW = 64, 1e-3, 256, 2
VAE = mnist()
STACKS = (1, 16, 64, 100)


def pixels_of(number: int) -> tuple[str, Tensor]:
    """The first images of MNIST where it is, else random ones, (number, 784) uint8; and which of the two."""
    try:
        return "MNIST", torch.from_numpy(np.array(load(Dataset("mnist")).train_images[:number])).view(number, -1)
    except DatasetError:
        stream = np.random.default_rng(0)
        return "random images of MNIST's shape", torch.from_numpy(
            stream.integers(0, 256, (number, 784), dtype=np.uint8)
        )


class Ours:
    """Stacks of models in training: one by slopes written out, several by autograd over all of them."""

    def __init__(self, data: Tensor, models: int) -> None:
        self.data, self.models, self.learning = data, models, Generation(VAE)
        start = initial(VAE.weights, 0)
        shapes = {name: (models, *values.shape) for name, values in start.items()}
        self.weights = Flat(shapes, data.device, torch.float32)
        for name, values in start.items():
            self.weights.views[name].copy_(torch.from_numpy(values))
        self.adam = Adam(self.weights, LEARNING_RATE)
        self.leaves = {name: view.detach().requires_grad_() for name, view in self.weights.views.items()}
        self.members = torch.arange(models, device=data.device)
        self.shares = torch.ones(BATCH, device=data.device)
        self.labels = torch.zeros(models, BATCH, dtype=torch.int64, device=data.device)
        self.steps = count(1)

    def epoch(self) -> None:
        orders = torch.stack([torch.randperm(len(self.data)) for _ in range(self.models)]).to(self.data.device)
        for rows in orders.split(BATCH, 1):
            self.step(self.data[rows])

    def step(self, pixels: Tensor) -> None:
        """One update by a minibatch of every model: (models, BATCH, 784)."""
        steps = torch.full_like(self.members, next(self.steps))
        draws = Draws(step_keys(self.members, steps))
        if self.models == 1:
            with torch.inference_mode():
                one = {name: view[0] for name, view in self.weights.views.items()}
                by_hand = self.learning.by_hand(one, pixels[0], self.labels[0], self.shares, draws)
                assert by_hand is not None
                slopes: Sequence[Tensor] = by_hand[1]
        else:
            losses = self.learning.losses(self.leaves, Batch(pixels, self.labels, Mode(True, draws)))
            slopes = torch.autograd.grad(losses.sum(), list(self.leaves.values()))
        with torch.no_grad():
            self.adam.step(slopes)


class Usual(nn.Module):
    """The network as it is usually written."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1024, *VAE.hidden)
        self.inner = nn.Sequential(*chain(widths))
        self.mean, self.log_variance = nn.Linear(widths[-1], VAE.latent), nn.Linear(widths[-1], VAE.latent)
        self.outer = nn.Sequential(*chain((VAE.latent, *widths[:0:-1])), nn.Linear(widths[1], 1024), nn.Sigmoid())

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = self.inner(x)
        return self.mean(inner), self.log_variance(inner)

    def forward(self, x: Tensor) -> Tensor:
        """The negative evidence lower bound of the minibatch."""
        mean, log_variance = self.encode(x)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        likelihood = functional.binary_cross_entropy(self.outer(z), x, reduction="sum")
        return likelihood - 0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())

    def take(self, tensors: Mapping[str, Tensor]) -> Usual:
        """Our weights, of one model."""
        start = {}
        for kind in ("weight", "bias"):
            start[f"mean.{kind}"], start[f"log_variance.{kind}"] = tensors[f"encoder3.{kind}"].chunk(2)
            start |= {f"inner.{2 * k}.{kind}": tensors[f"encoder{k + 1}.{kind}"] for k in range(2)}
            start |= {f"outer.{2 * k}.{kind}": tensors[f"decoder{k + 1}.{kind}"] for k in range(3)}
        self.load_state_dict(start)
        return self


def chain(widths: Sequence[int]) -> list[nn.Module]:
    return [module for a, b in pairwise(widths) for module in (nn.Linear(a, b), nn.ReLU())]


def tensors(data: Tensor, place: torch.device) -> Run:
    """The usual loop over tensors in memory."""
    padded = functional.pad(data.cpu().view(-1, 1, 28, 28) / np.float32(255), (2, 2, 2, 2)).flatten(1)
    return naive(torch.utils.data.TensorDataset(padded), place)


class Pictures(torch.utils.data.Dataset[tuple[Tensor]]):
    """What torchvision.datasets.MNIST does for an item."""

    def __init__(self, data: Tensor) -> None:
        from torchvision import transforms  # type: ignore[import-untyped]

        self.pixels = data.cpu().view(-1, 28, 28).numpy()
        self.transform = transforms.Compose([transforms.Pad(2), transforms.ToTensor(), nn.Flatten(0)])

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> tuple[Tensor]:
        from PIL import Image

        return (self.transform(Image.fromarray(self.pixels[row])),)


def pictures(data: Tensor, place: torch.device) -> Run:
    """The usual loop over pictures."""
    return naive(Pictures(data), place)


def naive(rows: torch.utils.data.Dataset[Any], place: torch.device) -> Run:
    """DataLoader, autograd and Adam, all at their defaults."""
    network = Usual().to(place)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True)

    def epoch() -> None:
        for (images,) in loader:
            loss = network(torch.bernoulli(images.to(place)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return epoch


def by_distributions(network: Usual, x: Tensor, noise: Tensor | None = None) -> Tensor:
    """The paper's estimate of log p(x) for x (n, 1024): every code decoded, every density torch.distributions'."""
    mean, log_variance = network.encode(x)
    posterior = Normal(mean, torch.exp(0.5 * log_variance))
    z = posterior.rsample((SAMPLES,)) if noise is None else mean + torch.exp(0.5 * log_variance) * noise
    prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
    likelihood = Bernoulli(network.outer(z)).log_prob(x).sum(-1)
    weights = likelihood + prior.log_prob(z).sum(-1) - posterior.log_prob(z).sum(-1)
    return torch.logsumexp(weights, 0) - math.log(SAMPLES)


class Estimates:
    """log p of some points under trained models, by us and by the paper's form."""

    def __init__(self, ours: Ours, points: int) -> None:
        self.pixels, self.members = ours.data[:points], ours.members
        self.rows = torch.arange(points, device=self.pixels.device)
        self.tensors = {name: view.clone() for name, view in ours.weights.views.items()}
        self.x = fixed(VAE.preparation, self.pixels, observation_keys(0, self.rows), torch.float32)
        self.network = Usual().to(self.x.device).take({name: tensor[0] for name, tensor in self.tensors.items()})

    def ours(self, sampling: Sampling, dtype: torch.dtype = torch.float32) -> Tensor:
        tensors = {name: tensor.to(dtype) for name, tensor in self.tensors.items()}
        return log_p(VAE, tensors, self.pixels, self.rows, self.members, sampling)

    def papers(self, at_once: int) -> None:
        with torch.inference_mode():
            for x in self.x.split(at_once):
                by_distributions(self.network, x)

    def errors(self, sampling: Sampling) -> tuple[float, float]:
        """Ours and the paper's, each against its own codes in float64, in nats."""
        ours = self.ours(sampling).double() - self.ours(Sampling(SAMPLES), torch.float64)
        noise = torch.randn(SAMPLES, len(self.x), VAE.latent, device=self.x.device)
        exact = Usual().to(self.x.device).double().take({name: tensor[0] for name, tensor in self.tensors.items()})
        with torch.inference_mode():
            single = by_distributions(self.network, self.x, noise)
            papers = single.double() - by_distributions(exact, self.x.double(), noise.double())
        return float(ours.abs().max()), float(papers.abs().max())


def gigaflops_of_a_step() -> float:
    """The products of one minibatch: forward, slopes of the weights, and slopes of all rows but the first layer's."""
    sizes = [math.prod(weight.shape) for name, weight in VAE.weights.items() if name.endswith("weight")]
    return 2 * BATCH * (3 * sum(sizes) - sizes[0]) / 1e9


def gigaflops_of_a_code() -> float:
    """The products of decoding it."""
    return 2 * sum(math.prod(weight.shape) for name, weight in VAE.weights.items() if "decoder" in name) / 1e9


def one_thread(data: Tensor, rounds: int, points: int) -> Iterator[Row]:
    """The rows that one thread of a processor answers."""
    torch.set_num_threads(1)
    place = data.device
    kind, clock = clock_of(place)
    ours = Ours(data, 1)
    rivals: dict[str, Run] = {"tensors": tensors(data, place), "pictures": pictures(data, place)}
    products = ceilings(place)
    seconds = in_turn({"engram": ours.epoch, **rivals, **products}, rounds, clock)
    steps = len(data) / BATCH
    step = seconds["engram"] / steps
    for name, must, aim in (("tensors", 1.3, 2.0), ("pictures", 1.8, 2.8)):
        rival = seconds[name] / steps
        beside = f"{rival * 1e6:.0f} us, {name}"
        yield Row(f"autoencoder's step, {kind}", f"{step * 1e6:.0f} us", beside, rival / step, must, aim)
    yield share("autoencoder's step", gigaflops_of_a_step() / step, {name: seconds[name] for name in products})

    estimates, sampling = Estimates(ours, points), Sampling(SAMPLES)
    runs: dict[str, Run] = {"engram": partial(estimates.ours, sampling)}
    runs |= {str(at_once): partial(estimates.papers, at_once) for at_once in (FEW, BATCH)}
    seconds = in_turn({**runs, **products}, rounds, clock)
    point = seconds["engram"] / points
    error, papers = estimates.errors(sampling)
    for at_once, goals in ((FEW, (2.0, 2.5)), (BATCH, (math.nan, math.nan))):
        rival = seconds[str(at_once)] / points
        yield Row(
            f"log p of a point, {SAMPLES} codes, {kind}",
            f"{point * 1e3:.2f} ms, off by {error:.0e} nats",
            f"{rival * 1e3:.2f} ms, off by {papers:.0e} nats, the paper's form by {at_once} points",
            rival / point,
            *goals,
        )
    work = gigaflops_of_a_code() * SAMPLES
    yield share("log p", work / point, {name: seconds[name] for name in products})


def share(what: str, ours: float, products: Mapping[str, float]) -> Row:
    """Our GF/s beside those of the fastest product."""
    best = min(products, key=lambda name: products[name])
    ceiling = rate(products[best])
    beside = f"{ceiling:.0f} GF/s"
    return Row(
        f"{what}: share of {best}'s products (the ceiling)",
        f"{ours:.0f} GF/s",
        beside,
        ours / ceiling,
        *(math.nan,) * 2,
    )


def stacked(data: Tensor, rounds: int, points: int, stacks: Sequence[int] = STACKS) -> Iterator[Row]:
    """The rows of a GPU: stacks of models in training, and their estimates by precision."""
    place = data.device
    kind, clock = clock_of(place)
    steps = len(data) / BATCH
    trained = {models: Ours(data, models) for models in stacks}
    runs: dict[str, Run] = {str(models): ours.epoch for models, ours in trained.items()}
    seconds = in_turn({**runs, "tensors": tensors(data, place)}, rounds, clock)
    rival = seconds["tensors"] / steps
    per_step = {models: seconds[str(models)] / steps / models for models in stacks}
    for models, step in per_step.items():
        beside = f"{rival * 1e6:.0f} us, tensors"
        yield Row(
            f"model-step, {models} stacked, {kind}", f"{step * 1e6:.1f} us", beside, rival / step, *(math.nan,) * 2
        )

    most = max(stacks)
    estimates = Estimates(trained[most], points)
    seconds = in_turn({**{name: partial(at, estimates, name) for name in PRECISIONS}}, rounds, clock)
    seconds |= in_turn({"paper's form": partial(estimates.papers, BATCH)}, rounds, clock)
    theirs = points * SAMPLES / seconds["paper's form"]
    codes = {name: most * points * SAMPLES / seconds[name] for name in PRECISIONS}
    for name, speed in codes.items():
        error, papers = at(estimates, name, errors=True)
        yield Row(
            f"codes of {most} models, {name}, {kind}",
            f"{speed / 1e6:.1f} M/s, off by {error:.0e} nats",
            f"{theirs / 1e6:.1f} M/s, off by {papers:.0e} nats, the paper's form",
            speed / theirs,
            *(math.nan,) * 2,
        )
    for name, speed in codes.items():
        training = 100 * 100 * 54_000 / BATCH * per_step[most]
        minutes = (training + 100 * 20 * 60_000 * SAMPLES / speed) / 60
        what = f"100 folds x 100 epochs with log p ({name}) every 5, reckoned from these"
        yield Row(what, f"{minutes:.1f} min", f"{training / 60:.1f} min of it training", minutes, 12, 6, "min")


PRECISIONS = ("float32", "TF32", "bfloat16")


def at(estimates: Estimates, precision: str, errors: bool = False) -> tuple[float, float]:
    """One estimate (or its errors) with the decoder's products in that precision."""
    sampling = Sampling(SAMPLES, decoder="bfloat16" if precision == "bfloat16" else "as trained")
    with products_in("tf32" if precision == "TF32" else "ieee"):
        if errors:
            return estimates.errors(sampling)
        estimates.ours(sampling)
        return math.nan, math.nan


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Inside, a GPU's float32 products are made of such numbers."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = precision
    try:
        yield
    finally:
        settings.fp32_precision = before


def main() -> None:
    given = options(__doc__)
    place = torch.device(given.device)
    number, rounds, points = (BATCH * 4, 2, 8) if given.tiny else (BATCH * 60, 9, 64)
    name, data = pixels_of(number)
    if place.type == "cpu":
        rows = list(one_thread(data, rounds, points))
    else:
        rows = list(stacked(data.to(place), rounds, points if given.tiny else 2048))
    publish("Training the autoencoder and estimating log p", here(name, place), rows, given.out)


if __name__ == "__main__":
    main()
