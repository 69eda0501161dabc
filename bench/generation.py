"""Speed of density's fully connected autoencoder when training and estimating log p, compared with typical code.

    python -m bench.generation [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

The rivals in training use the same network, minibatches and loss with autograd and torch.optim.Adam at its defaults,
and

- tensors: DataLoader(TensorDataset) over padded float32 images in memory;
- PIL: DataLoader over a data set that creates a PIL image of each item and applies transforms.Pad() and ToTensor().

Both draw a minibatch's binary pixels with torch.bernoulli. The rival in estimation is the paper's form, which decodes
all codes for a block of points and sums the log densities from torch.distributions, with 2 points per block (its
fastest setting) and with a minibatch per block. Errors are the largest over these points, compared with the same codes
in float64.

On a CPU, all code uses one thread, and every ratio compares median CPU times from the same run. The ceiling is the
fastest float32 matrix product (1024 x 1024) in the run, and the share of the ceiling counts matrix products only. On a
GPU, stacks of models are timed per model and step, and estimates by the precision of the decoder's products. If
ENGRAM_DATA has no MNIST, random images of the same shape are used; the speed is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Normal
from torch.nn import functional

from bench.engine import STEPS, VAE, autoencoders, epochs, first, seated, steps
from bench.engine import VAE_BATCH as BATCH
from bench.engine import VAE_LEARNING_RATE as LEARNING_RATE
from bench.measuring import Row, Run, clock_for, in_turn, parse_options, publish
from measurement.images import images
from measurement.machine import ceilings, rate
from measurement.report import measurement_facts
from tasks.datasets.images import Images
from tasks.models import importance
from tasks.models.importance import Sampling, estimate_log_density
from tasks.models.likelihoods import fixed_inputs, observation_keys
from tasks.numerics.precision import DecoderPrecision
from tasks.training.stack import Stack
from tasks.training.strategies import Strategy
from tasks.worker import hardware
from tasks.worker.hardware import full_float32

if TYPE_CHECKING:
    from tasks.models.decoder_kernels import Tiles

SAMPLES = 256
FEW = 2
# In the density audit, with log p estimated every 5 epochs.
FOLDS = 100
EPOCHS = 100
ESTIMATED = 20
ROWS = 60_000
TRAINED_ON = 54_000
STACKS = (100, 64, 16, 1)
CPU = torch.device("cpu")


class UsualNetwork(nn.Module):
    """The network as a torch module."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1024, *VAE.hidden)
        self.inner = nn.Sequential(*chain(widths))
        self.mean = nn.Linear(widths[-1], VAE.latent)
        self.log_variance = nn.Linear(widths[-1], VAE.latent)
        self.outer = nn.Sequential(*chain((VAE.latent, *widths[:0:-1])), nn.Linear(widths[1], 1024), nn.Sigmoid())

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = self.inner(x)
        return self.mean(inner), self.log_variance(inner)

    def forward(self, x: Tensor) -> Tensor:
        """Return the negative evidence lower bound of the minibatch."""
        mean, log_variance = self.encode(x)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        likelihood = functional.binary_cross_entropy(self.outer(z), x, reduction="sum")
        return likelihood - 0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())

    def take(self, tensors: Mapping[str, Tensor]) -> UsualNetwork:
        """Load the weights of one of Engram's models."""
        start = {}
        for kind in ("weight", "bias"):
            start[f"mean.{kind}"], start[f"log_variance.{kind}"] = tensors[f"encoder3.{kind}"].chunk(2)
            start |= {f"inner.{2 * k}.{kind}": tensors[f"encoder{k + 1}.{kind}"] for k in range(2)}
            start |= {f"outer.{2 * k}.{kind}": tensors[f"decoder{k + 1}.{kind}"] for k in range(3)}
        self.load_state_dict(start)
        return self


def chain(widths: Sequence[int]) -> list[nn.Module]:
    return [module for a, b in pairwise(widths) for module in (nn.Linear(a, b), nn.ReLU())]


def tensors(data: Images, device: torch.device) -> Run:
    """Return the rival loop over tensors in memory."""
    pixels = torch.from_numpy(data.train_images[..., 0] / np.float32(255))
    padded = functional.pad(pixels, (2, 2, 2, 2)).flatten(1)
    return naive(torch.utils.data.TensorDataset(padded), device)


class PilImages(torch.utils.data.Dataset[tuple[Tensor]]):
    """Items as produced by torchvision.datasets.MNIST."""

    def __init__(self, data: Images) -> None:
        from torchvision import transforms  # type: ignore[import-untyped]

        self.pixels = np.array(data.train_images[..., 0])
        self.transform = transforms.Compose([transforms.Pad(2), transforms.ToTensor(), nn.Flatten(0)])

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> tuple[Tensor]:
        from PIL import Image

        return (self.transform(Image.fromarray(self.pixels[row])),)


def pil_images(data: Images, device: torch.device) -> Run:
    """Return the rival loop over PIL images."""
    return naive(PilImages(data), device)


def naive(data: torch.utils.data.Dataset[Any], device: torch.device) -> Run:
    """Return an epoch with DataLoader, autograd and Adam, all at their defaults."""
    network = UsualNetwork().to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)

    def epoch() -> None:
        for (rows,) in loader:
            loss = network(torch.bernoulli(rows.to(device)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return epoch


def by_distributions(network: UsualNetwork, x: Tensor, noise: Tensor | None = None) -> Tensor:
    """Compute the paper's estimate of log p(x) for x (n, 1024), decoding every code and using torch.distributions."""
    mean, log_variance = network.encode(x)
    posterior = Normal(mean, torch.exp(0.5 * log_variance))
    if noise is None:
        z = posterior.rsample((SAMPLES,))
    else:
        z = mean + torch.exp(0.5 * log_variance) * noise
    prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
    likelihood = Bernoulli(network.outer(z)).log_prob(x).sum(-1)
    weights = likelihood + prior.log_prob(z).sum(-1) - posterior.log_prob(z).sum(-1)
    return torch.logsumexp(weights, 0) - math.log(SAMPLES)


@dataclass(frozen=True, eq=False)
class Estimates:
    """log p of points (n, 784) under the models in a stack, by Engram and by the paper's form."""

    pixels: Tensor
    tensors: Mapping[str, Tensor]  # (models, *shape)
    members: Tensor  # (models,) keys

    @classmethod
    def of(cls, stack: Stack, points: int) -> Estimates:
        """Create estimates for the first training images."""
        now = {name: tensor.detach().clone() for name, tensor in stack.tensors.items()}
        return cls(stack.data.train[:points].clone(), now, stack.keys.clone())

    def few(self, points: int) -> Estimates:
        """Return the estimates for the first points only."""
        return Estimates(self.pixels[:points], self.tensors, self.members)

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.pixels), device=self.pixels.device)

    @property
    def x(self) -> Tensor:
        """The points as inputs to all models, (n, 1024)."""
        return fixed_inputs(VAE.preparation, self.pixels, observation_keys(0, self.rows), torch.float32)

    @property
    def network(self) -> UsualNetwork:
        """The first model as a torch module."""
        return UsualNetwork().to(self.pixels.device).take({name: tensor[0] for name, tensor in self.tensors.items()})

    def engram_log_p(self, sampling: Sampling, dtype: torch.dtype = torch.float32) -> Tensor:
        tensors = {name: tensor.to(dtype) for name, tensor in self.tensors.items()}
        return estimate_log_density(VAE, tensors, self.pixels, self.rows, self.members, sampling).log_p

    def way(self, precision: str) -> str:
        """Return how codes are decoded: triton or torch."""
        sampling = Sampling(2, precision=PRECISIONS[precision])
        first = self.few(1)
        return estimate_log_density(VAE, self.tensors, first.pixels, first.rows, self.members, sampling).way

    def papers(self, at_once: int) -> Run:
        network = self.network
        x = self.x

        def estimate() -> None:
            with torch.inference_mode():
                for some in x.split(at_once):
                    by_distributions(network, some)

        return estimate

    def errors(self, sampling: Sampling) -> tuple[float, float]:
        """Return the errors of Engram and of the paper's form in nats, compared with the same codes in float64."""
        engram_error = self.engram_log_p(sampling).double() - self.engram_log_p(Sampling(SAMPLES), torch.float64)
        x = self.x
        network = self.network
        noise = torch.randn(SAMPLES, len(x), VAE.latent, device=x.device)
        exact = UsualNetwork().to(x.device).double().take({name: tensor[0] for name, tensor in self.tensors.items()})
        with torch.inference_mode():
            paper_error = by_distributions(network, x, noise).double()
            paper_error -= by_distributions(exact, x.double(), noise.double())
        return float(engram_error.abs().max()), float(paper_error.abs().max())


def gigaflops_of_a_step() -> float:
    """Return the GFLOPs of one step: forward pass, weight gradients, and input gradients except in the first layer."""
    sizes = []
    for name, weight in VAE.weights.items():
        if name.endswith("weight"):
            sizes.append(math.prod(weight.shape))
    return 2 * BATCH * (3 * sum(sizes) - sizes[0]) / 1e9


def gigaflops_of_a_code() -> float:
    """Return the GFLOPs of decoding one code."""
    return 2 * sum(math.prod(weight.shape) for name, weight in VAE.weights.items() if "decoder" in name) / 1e9


def training(data: Images, rounds: int) -> Iterator[Row]:
    """Measure training on one thread."""
    torch.set_num_threads(1)
    kind, clock = clock_for(CPU)
    (stack,) = seated(autoencoders(data, CPU), Strategy("loop"))
    rivals: dict[str, Run] = {"tensors": tensors(data, CPU), "PIL": pil_images(data, CPU)}
    products = ceilings(CPU)
    seconds = in_turn({"engram": epochs(stack), **rivals, **products}, rounds, clock)
    steps = len(data.train_images) / BATCH
    step = seconds["engram"] / steps
    for name, required, target in (("tensors", 1.3, 2.0), ("PIL", 1.8, 2.8)):
        rival = seconds[name] / steps
        rival_text = f"{rival * 1e6:.0f} us, {name}"
        yield Row(f"autoencoder's step, {kind}", f"{step * 1e6:.0f} us", rival_text, rival / step, required, target)
    yield share("autoencoder's step", gigaflops_of_a_step() / step, {name: seconds[name] for name in products})


def estimation(data: Images, rounds: int, points: int) -> Iterator[Row]:
    """Measure log p on one thread, under a model trained for one epoch."""
    torch.set_num_threads(1)
    kind, clock = clock_for(CPU)
    (stack,) = seated(autoencoders(data, CPU), Strategy("loop"))
    epochs(stack)()
    estimates = Estimates.of(stack, points)
    sampling = Sampling(SAMPLES)
    products = ceilings(CPU)
    runs: dict[str, Run] = {"engram": partial(estimates.engram_log_p, sampling)}
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


def share(subject: str, gigaflops: float, products: Mapping[str, float]) -> Row:
    """Compare Engram's GF/s with the fastest matrix product."""
    best = min(products, key=lambda name: products[name])
    ceiling = rate(products[best])
    ceiling_text = f"{ceiling:.0f} GF/s"
    return Row(
        f"{subject}: share of {best}'s products (the ceiling)",
        f"{gigaflops:.0f} GF/s",
        ceiling_text,
        gigaflops / ceiling,
    )


def stacked(
    data: Images, device: torch.device, rounds: int, points: int, stacks: Sequence[int] = STACKS, count: int = STEPS
) -> Iterator[Row]:
    """Measure a GPU: training of stacked models, and their estimates by precision."""
    kind, clock = clock_for(device)
    workload = autoencoders(data, device)
    captured = device.type == "cuda"
    few = first(data, 60 * BATCH)
    usual_loop = tensors(few, device)
    largest = max(stacks)
    step = estimates = None
    with hardware.exactly(device):
        for models in stacks:
            trained_stacks = seated(workload, Strategy("stack", places=models, captured=captured))
            seconds = in_turn({"engram": steps(workload, trained_stacks, count), "tensors": usual_loop}, rounds, clock)
            engram_seconds = seconds["engram"] / count / models
            rival = seconds["tensors"] * BATCH / len(few.train_images)
            yield Row(
                f"autoencoders, {models} stacked{', captured' if captured else ''}: model-step, {kind}",
                f"{engram_seconds * 1e6:.1f} us",
                f"{rival * 1e6:.0f} us, tensors",
                rival / engram_seconds,
            )
            if models == largest:
                step = engram_seconds
                estimates = Estimates.of(trained_stacks[0], points)
            del trained_stacks
    assert step is not None
    assert estimates is not None
    yield from by_precision(estimates, step, rounds, kind)
    if estimates.way("float32") == "triton":
        yield from by_tiles(estimates, rounds)


def by_precision(estimates: Estimates, step: float, rounds: int, kind: str) -> Iterator[Row]:
    """Measure codes per second by decoder precision. Derive an audit's time from these rates and from `step`."""
    device = estimates.pixels.device
    model_count = len(estimates.members)
    points = len(estimates.pixels)
    _, clock = clock_for(device)
    runs: dict[str, Run] = {name: partial(estimated, estimates, name) for name in PRECISIONS}
    if device.type == "cuda":
        runs |= {f"{name}, torch": partial(estimated_by_torch, estimates, name) for name in PRECISIONS}
    seconds = in_turn({**runs, "paper's form": estimates.papers(BATCH)}, rounds, clock)
    rival_rate = points * SAMPLES / seconds["paper's form"]
    codes = {name: model_count * points * SAMPLES / seconds[name] for name in PRECISIONS}
    for name in PRECISIONS:
        by_torch = seconds.get(f"{name}, torch")
        if by_torch is not None:
            yield Row(
                f"log p of {model_count} models, {name}: {estimates.way(name)} compared with torch, {kind}",
                f"{seconds[name]:.3f} s",
                f"{by_torch:.3f} s",
                by_torch / seconds[name],
            )
    for name, speed in codes.items():
        with products_in(name):
            error, papers = estimates.few(32).errors(sampling_in(name))
        yield Row(
            f"log p of {model_count} models, {name}: points x samples a second, {kind}",
            f"{speed / 1e6:.1f} M, off by {error:.0e} nats",
            f"{rival_rate / 1e6:.1f} M, off by {papers:.0e} nats, the paper's form by {BATCH} points",
            speed / rival_rate,
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


PRECISIONS: Mapping[str, DecoderPrecision] = {"float32": "float32", "TF32": "tf32", "bfloat16": "bfloat16"}


def sampling_in(precision: str) -> Sampling:
    return Sampling(SAMPLES, precision=PRECISIONS[precision])


def estimated(estimates: Estimates, precision: str) -> None:
    """Run one estimate with the decoder's products in this precision."""
    with products_in(precision):
        estimates.engram_log_p(sampling_in(precision))


# Tiles (samples, units, inputs, warps, stages) that the compiler fits into registers, by precision. The first ones are
# used. Others take fewer registers, so that two programs share an SM: one multiplies and one computes exponentials.
CANDIDATES: Mapping[str, Sequence[tuple[int, int, int, int, int]]] = {
    "float32": ((128, 128, 16, 8, 4), (128, 64, 16, 8, 4), (128, 64, 32, 8, 3)),
    "TF32": ((128, 128, 32, 8, 4), (128, 64, 32, 8, 4)),
    "bfloat16": ((128, 128, 64, 8, 4), (128, 64, 64, 8, 4)),
}


def by_tiles(estimates: Estimates, rounds: int) -> Iterator[Row]:
    """Measure the kernels for log p with other sizes of tiles. Requires a GPU and Triton."""
    from tasks.models import decoder_kernels

    kind, clock = clock_for(estimates.pixels.device)
    for name, candidates in CANDIDATES.items():
        runs = {}
        for sizes in candidates:
            runs[" ".join(map(str, sizes))] = partial(estimated_with, estimates, name, decoder_kernels.Tiles(*sizes))
        seconds = in_turn(dict(runs), rounds, clock)
        used = next(iter(seconds.values()))
        for tiles, time in seconds.items():
            subject = f"log p, {name}: tiles {tiles}, {kind}"
            yield Row(subject, f"{time:.3f} s", f"{used:.3f} s, tiles used", used / time)


def estimated_with(estimates: Estimates, name: str, tiles: Tiles) -> None:
    """Run one estimate with tiles of these sizes."""
    from tasks.models import decoder_kernels

    with mock.patch.dict(decoder_kernels.TILES, {PRECISIONS[name]: tiles}):
        estimated(estimates, name)


def estimated_by_torch(estimates: Estimates, precision: str) -> None:
    """Run one estimate without Triton's kernels."""
    with mock.patch.object(importance, "has_kernels", return_value=False):
        estimated(estimates, precision)


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Make a GPU compute float32 products in TF32 if `precision` is TF32, otherwise in full float32."""
    with full_float32():
        if precision == "TF32":
            # torch raises an error if this setting and the one in torch.backends differ. This call sets both.
            torch.set_float32_matmul_precision("high")
        yield


def main() -> None:
    arguments = parse_options(__doc__)
    device = torch.device(arguments.device)
    if arguments.tiny:
        number = BATCH * 4
        rounds = 1
        points = 2
    else:
        number = BATCH * 60
        rounds = 9
        points = 64
    if device.type == "cpu":
        name, data = images(number)
        rows = [*training(data, rounds), *estimation(data, rounds, points)]
    else:
        name, data = images(number if arguments.tiny else 60_000)
        rows = list(stacked(data, device, 3, points if arguments.tiny else 1024))
    publish("Training the autoencoder and estimating log p", measurement_facts(name, device), rows, arguments.out)


if __name__ == "__main__":
    main()
