"""How fast the fully connected autoencoder of density trains here and log p is estimated, beside the usual ways.

    python -m bench.generation [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

Rivals in training: the same network, minibatches and loss with autograd and torch.optim.Adam at its defaults, fed by

- tensors: DataLoader(TensorDataset) over padded float32 images that are already in memory;
- pictures: DataLoader over a data set that makes a PIL image and transforms.Pad() and ToTensor() of each.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Normal
from torch.nn import functional

from bench.engine import STEPS, VAE, autoencoders, epochs, first, seated, steps
from bench.engine import VAE_BATCH as BATCH
from bench.engine import VAE_LEARNING_RATE as LEARNING_RATE
from bench.measuring import Row, Run, clock_of, in_turn, options, publish
from measurement.images import images
from measurement.machine import ceilings, rate
from measurement.report import measurement_facts
from tasks.datasets.images import Images
from tasks.models.importance import Sampling, estimate_log_density
from tasks.models.likelihoods import fixed_inputs, observation_keys
from tasks.training.stack import Stack
from tasks.training.strategies import Strategy
from tasks.worker import hardware
from tasks.worker.hardware import full_float32

SAMPLES, FEW = 256, 2
FOLDS, EPOCHS, ESTIMATED, ROWS, TRAINED_ON = 100, 100, 20, 60_000, 54_000  # of density: log p every 5 epochs
STACKS = (100, 64, 16, 1)
CPU = torch.device("cpu")


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


def tensors(data: Images, place: torch.device) -> Run:
    """The usual loop over tensors in memory."""
    pixels = torch.from_numpy(data.train_images[..., 0] / np.float32(255))
    padded = functional.pad(pixels, (2, 2, 2, 2)).flatten(1)
    return naive(torch.utils.data.TensorDataset(padded), place)


class Pictures(torch.utils.data.Dataset[tuple[Tensor]]):
    """What torchvision.datasets.MNIST does for an item."""

    def __init__(self, data: Images) -> None:
        from torchvision import transforms  # type: ignore[import-untyped]

        self.pixels = np.array(data.train_images[..., 0])
        self.transform = transforms.Compose([transforms.Pad(2), transforms.ToTensor(), nn.Flatten(0)])

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> tuple[Tensor]:
        from PIL import Image

        return (self.transform(Image.fromarray(self.pixels[row])),)


def pictures(data: Images, place: torch.device) -> Run:
    """The usual loop over pictures."""
    return naive(Pictures(data), place)


def naive(data: torch.utils.data.Dataset[Any], place: torch.device) -> Run:
    """DataLoader, autograd and Adam, all at their defaults."""
    network = Usual().to(place)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)

    def epoch() -> None:
        for (rows,) in loader:
            loss = network(torch.bernoulli(rows.to(place)))
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


@dataclass(frozen=True, eq=False)
class Estimates:
    """log p of some points (n, 784) under the models of a stack, by us and by the paper's form."""

    pixels: Tensor
    tensors: Mapping[str, Tensor]  # (models, *shape)
    members: Tensor  # (models,) keys

    @classmethod
    def of(cls, stack: Stack, points: int) -> Estimates:
        """Of the first training images."""
        now = {name: tensor.detach().clone() for name, tensor in stack.tensors.items()}
        return cls(stack.data.train[:points].clone(), now, stack.keys.clone())

    def few(self, points: int) -> Estimates:
        """Of the first points alone."""
        return Estimates(self.pixels[:points], self.tensors, self.members)

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.pixels), device=self.pixels.device)

    @property
    def x(self) -> Tensor:
        """The points as all models see them, (n, 1024)."""
        return fixed_inputs(VAE.preparation, self.pixels, observation_keys(0, self.rows), torch.float32)

    @property
    def network(self) -> Usual:
        """The first model as it is usually written."""
        return Usual().to(self.pixels.device).take({name: tensor[0] for name, tensor in self.tensors.items()})

    def ours(self, sampling: Sampling, dtype: torch.dtype = torch.float32) -> Tensor:
        tensors = {name: tensor.to(dtype) for name, tensor in self.tensors.items()}
        return estimate_log_density(VAE, tensors, self.pixels, self.rows, self.members, sampling).log_p

    def papers(self, at_once: int) -> Run:
        network, x = self.network, self.x

        def estimate() -> None:
            with torch.inference_mode():
                for some in x.split(at_once):
                    by_distributions(network, some)

        return estimate

    def errors(self, sampling: Sampling) -> tuple[float, float]:
        """Ours and the paper's, each against its own codes in float64, in nats."""
        ours = self.ours(sampling).double() - self.ours(Sampling(SAMPLES), torch.float64)
        x, network = self.x, self.network
        noise = torch.randn(SAMPLES, len(x), VAE.latent, device=x.device)
        exact = Usual().to(x.device).double().take({name: tensor[0] for name, tensor in self.tensors.items()})
        with torch.inference_mode():
            papers = by_distributions(network, x, noise).double()
            papers -= by_distributions(exact, x.double(), noise.double())
        return float(ours.abs().max()), float(papers.abs().max())


def gigaflops_of_a_step() -> float:
    """The products of one minibatch: forward, and the gradients of weights and of all rows but the first layer's."""
    sizes = [math.prod(weight.shape) for name, weight in VAE.weights.items() if name.endswith("weight")]
    return 2 * BATCH * (3 * sum(sizes) - sizes[0]) / 1e9


def gigaflops_of_a_code() -> float:
    """The products of decoding it."""
    return 2 * sum(math.prod(weight.shape) for name, weight in VAE.weights.items() if "decoder" in name) / 1e9


def training(data: Images, rounds: int) -> Iterator[Row]:
    """The rows of training that one thread answers."""
    torch.set_num_threads(1)
    kind, clock = clock_of(CPU)
    (stack,) = seated(autoencoders(data, CPU), Strategy("loop"))
    rivals: dict[str, Run] = {"tensors": tensors(data, CPU), "pictures": pictures(data, CPU)}
    products = ceilings(CPU)
    seconds = in_turn({"engram": epochs(stack), **rivals, **products}, rounds, clock)
    steps = len(data.train_images) / BATCH
    step = seconds["engram"] / steps
    for name, must, aim in (("tensors", 1.3, 2.0), ("pictures", 1.8, 2.8)):
        rival = seconds[name] / steps
        beside = f"{rival * 1e6:.0f} us, {name}"
        yield Row(f"autoencoder's step, {kind}", f"{step * 1e6:.0f} us", beside, rival / step, must, aim)
    yield share("autoencoder's step", gigaflops_of_a_step() / step, {name: seconds[name] for name in products})


def estimation(data: Images, rounds: int, points: int) -> Iterator[Row]:
    """The rows of log p that one thread answers, of a model that has trained for an epoch."""
    torch.set_num_threads(1)
    kind, clock = clock_of(CPU)
    (stack,) = seated(autoencoders(data, CPU), Strategy("loop"))
    epochs(stack)()
    estimates, sampling, products = Estimates.of(stack, points), Sampling(SAMPLES), ceilings(CPU)
    runs: dict[str, Run] = {"engram": partial(estimates.ours, sampling)}
    runs |= {str(at_once): estimates.papers(at_once) for at_once in (FEW, BATCH)}
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
    )


def stacked(
    data: Images, place: torch.device, rounds: int, points: int, stacks: Sequence[int] = STACKS, count: int = STEPS
) -> Iterator[Row]:
    """The rows of a GPU: stacks of models in training, and their estimates by precision."""
    kind, clock = clock_of(place)
    workload, captured = autoencoders(data, place), place.type == "cuda"
    few = first(data, 60 * BATCH)
    usual, most = tensors(few, place), max(stacks)
    step = estimates = None
    with hardware.exactly(place):
        for models in stacks:
            trained = seated(workload, Strategy("stack", places=models, captured=captured))
            seconds = in_turn({"engram": steps(workload, trained, count), "tensors": usual}, rounds, clock)
            ours, rival = seconds["engram"] / count / models, seconds["tensors"] * BATCH / len(few.train_images)
            yield Row(
                f"autoencoders, {models} stacked{', captured' if captured else ''}: model-step, {kind}",
                f"{ours * 1e6:.1f} us",
                f"{rival * 1e6:.0f} us, tensors",
                rival / ours,
            )
            if models == most:
                step, estimates = ours, Estimates.of(trained[0], points)
            del trained
    assert step is not None
    assert estimates is not None
    yield from by_precision(estimates, step, rounds, kind)


def by_precision(estimates: Estimates, step: float, rounds: int, kind: str) -> Iterator[Row]:
    """Codes per second by the precision of the decoder, and from them and seconds of a model-step an audit's time."""
    place, models, points = estimates.pixels.device, len(estimates.members), len(estimates.pixels)
    _, clock = clock_of(place)
    runs: dict[str, Run] = {name: partial(estimated, estimates, name) for name in PRECISIONS}
    seconds = in_turn({**runs, "paper's form": estimates.papers(BATCH)}, rounds, clock)
    theirs = points * SAMPLES / seconds["paper's form"]
    codes = {name: models * points * SAMPLES / seconds[name] for name in PRECISIONS}
    for name, speed in codes.items():
        with products_in(name):
            error, papers = estimates.few(32).errors(sampling_in(name))
        yield Row(
            f"log p of {models} models, {name}: points x samples a second, {kind}",
            f"{speed / 1e6:.1f} M, off by {error:.0e} nats",
            f"{theirs / 1e6:.1f} M, off by {papers:.0e} nats, the paper's form by {BATCH} points",
            speed / theirs,
        )
    training = FOLDS * EPOCHS * math.ceil(TRAINED_ON / BATCH) * step
    for name, speed in codes.items():
        minutes = (training + FOLDS * ESTIMATED * ROWS * SAMPLES / speed) / 60
        yield Row(
            f"{FOLDS} autoencoders x {EPOCHS} epochs with log p ({name}) every 5: computed from the rates above",
            f"{minutes:.1f} min",
            f"{training / 60:.1f} min of it training",
            minutes,
            12,
            6,
            "min",
        )


PRECISIONS = ("float32", "TF32", "bfloat16")


def sampling_in(precision: str) -> Sampling:
    return Sampling(SAMPLES, decoder="bfloat16" if precision == "bfloat16" else "as trained")


def estimated(estimates: Estimates, precision: str) -> None:
    """One estimate with the decoder's products in that precision."""
    with products_in(precision):
        estimates.ours(sampling_in(precision))


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Inside, a GPU's float32 products are made of TF32's numbers where that is asked for; else of float32's."""
    with full_float32():
        if precision == "TF32":
            # torch refuses to multiply where this and torch.backends contradict each other; this sets both.
            torch.set_float32_matmul_precision("high")
        yield


def main() -> None:
    given = options(__doc__)
    place = torch.device(given.device)
    number, rounds, points = (BATCH * 4, 1, 2) if given.tiny else (BATCH * 60, 9, 64)
    if place.type == "cpu":
        name, data = images(number)
        rows = [*training(data, rounds), *estimation(data, rounds, points)]
    else:
        name, data = images(number if given.tiny else 60_000)
        rows = list(stacked(data, place, 3, points if given.tiny else 1024))
    publish("Training the autoencoder and estimating log p", measurement_facts(name, place), rows, given.out)


if __name__ == "__main__":
    main()
