"""Train with differential privacy: DP-SGD, implemented by opacus.

Every step samples each row with probability 1 / (steps per epoch) (Poisson sampling), clips each row's gradient to the
norm `clip`, and adds normal noise to the sum. The noise is chosen so that all epochs together are (epsilon, delta)
differentially private. Adam then uses this gradient. Abadi et al. 2016, "Deep learning with differential privacy",
algorithm 1. The privacy spent is computed by the privacy loss distribution: Gopi et al. 2021, "Numerical composition of
differential privacy".

The guarantee: to someone who does not know the seed, the weights after any step reveal little about whether a row was
present. For reproducible results, noise and rows are drawn from the config's seed by a non-cryptographic generator in
floating-point numbers (opacus: `secure_mode` off). Use this module to measure the effect of differential privacy, not
to release a model. The number of rows and the test split are public. Since the noise depends on the number of rows,
epsilon applies to each training separately.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.contract.extras import OPACUS
from tasks.models.counter_rng import CounterRng, member_key
from tasks.models.layers import Layers, Mode
from tasks.numerics import seeds
from tasks.training.device_data import DeviceData, place_images
from tasks.training.fit import Losses, fit
from tasks.training.members import Epoch, Member, Spec, Trained, TrainingError, not_finite
from tasks.training.objective import Batch, ByLayers
from tasks.training.recipe import Privacy, check_recipe
from tasks.training.stack import ASSESSED_AT_ONCE
from tasks.training.trainer import Outcome, check, inside_context
from tasks.worker import hardware
from tasks.worker.ranks import add_over_ranks, current_ranks, share_blocks, share_rows

Makers = Mapping[str, Callable[[], nn.Module]]  # creates a new module for each layer, by layer name


class Network(nn.Module):
    """The weights as modules with the same names. Calling it with a batch returns the loss of each row, (rows,).

    Dense and convolutional layers are modules, for which opacus computes per-row gradients. `makers` finds them by
    applying the objective to one image. All other operations (activations, pooling, dropout, draws) are computed as in
    training without privacy. They must keep rows independent, which batch norm does not.
    """

    def __init__(self, learning: ByLayers, makers: Makers, start: Mapping[str, Any]) -> None:
        super().__init__()
        self.learning = learning
        for name, make in makers.items():
            self.add_module(name, make())
        self.load_state_dict({name: torch.from_numpy(values) for name, values in _copy_arrays(start).items()})

    def forward(self, batch: Batch) -> Tensor:
        return self.learning.layer_losses(ModuleLayers(self, batch.mode), batch)[0]


class ModuleLayers(Layers):
    """The layers of one model, with modules for its dense and convolutional layers."""

    def __init__(self, network: nn.Module, mode: Mode) -> None:
        super().__init__({name: value[None] for name, value in network.named_parameters()}, mode)
        self._network = network

    def apply_dense(self, name: str, x: Tensor, /, *_: object) -> Tensor:
        result: Tensor = self._network.get_submodule(name)(x[0])
        return result[None]

    def apply_conv(self, name: str, x: Tensor, /, *_: object) -> Tensor:
        result: Tensor = self._network.get_submodule(name)(x)
        # The output of a module with hooks must not be changed in place, which activations may do.
        return result.clone()


class _Outline(Layers):
    """Layers that record how to create a module for each dense and convolutional layer."""

    def __init__(self, tensors: Mapping[str, Tensor], mode: Mode) -> None:
        super().__init__(tensors, mode)
        self.makers: dict[str, Callable[[], nn.Module]] = {}

    def apply_dense(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, /) -> Tensor:
        units, inputs = weight.shape[1:]
        self.makers[name] = lambda: _uninitialised_module(nn.Linear, inputs, units, bias=bias is not None)
        return super().apply_dense(name, x, weight, bias)

    def apply_conv(
        self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, /
    ) -> Tensor:
        (channels, inputs, kernel, _), settings = weight.shape, {"stride": stride, "padding": padding}
        self.makers[name] = lambda: _uninitialised_module(
            nn.Conv2d, inputs, channels, kernel, bias=bias is not None, **settings
        )
        return super().apply_conv(name, x, weight, bias, stride, padding)


def makers(spec: Spec, learning: ByLayers, data: DeviceData) -> Makers:
    """Return factories for the modules of the objective's layers.

    Raises ValueError for other layers, such as batch norm.
    """
    start = {}
    for name, values in _copy_arrays(learning.initial(0)).items():
        start[name] = torch.from_numpy(values).to(data.device)[None]
    draws = CounterRng(torch.tensor([member_key(0)], device=data.device), torch.tensor([0], device=data.device))
    outline = _Outline(start, Mode(True, draws))
    with torch.no_grad():
        pixels, labels = data.rows(torch.zeros(1, 1, dtype=torch.int64, device=data.device))
        learning.layer_losses(outline, Batch(pixels, labels, outline.mode))
    layer_weights = set()
    for name, make in outline.makers.items():
        for part, _ in make().named_parameters():
            layer_weights.add(f"{name}.{part}")
    if layer_weights != set(learning.weights):
        raise ValueError(refusal(spec))
    return outline.makers


def refusal(spec: Spec) -> str:
    return (
        f"privacy is set and the model is {spec.learning.name}; privacy requires a network of dense and convolutional "
        "layers without batch norm"
    )


def _uninitialised_module(kind: type[nn.Module], *sizes: int, **settings: Any) -> nn.Module:
    """Create a module without initial weights, which would be drawn from torch's global random stream."""
    return nn.utils.skip_init(kind, *sizes, **settings)  # type: ignore[no-untyped-call, no-any-return]


def _copy_arrays(start: Mapping[str, Any]) -> Mapping[str, Any]:
    """Copy the arrays, since torch has no read-only tensors."""
    return {name: values.copy() for name, values in start.items()}


ACCOUNTANT = "prv"
TOLERANCE = 0.01  # of epsilon: the largest fraction that may remain unspent


def train_many(
    spec: Spec,
    members: Sequence[Member],
    privacy: Privacy,
    steps: Sequence[int],
    device: torch.device | None = None,
) -> Iterator[Outcome]:
    """Yield each member's index with its trained model or its error.

    `steps` is the number of steps per epoch for each member. It must be the same with and without a row, so that both
    trainings are the same mechanism. `spec.watch` is called after every epoch. Raises ValueError if the objective has
    no private form.

    On a CPU, a step of the density models' published network takes four times as long as without privacy (24 instead of
    6 ms on one core), because of torch's products, two backward passes (one for the norms of the row gradients, one for
    the sum of the clipped gradients) and the noise for every weight. Computing the noise multiplier beforehand takes
    0.4 to 10 s.
    """
    device = device or hardware.device()
    check(spec, members)
    check_recipe(spec.recipe)
    _check_whole(members)
    learning = _private_form(spec)
    data, aliases = place_images(spec.images, device).replace_images([member.replaced for member in members])
    layers = makers(spec, learning, data)

    def outcomes() -> Iterator[Outcome]:
        for index, member in enumerate(members):
            rows = np.array([aliases[index].get(int(row), int(row)) for row in member.rows], np.int64)
            network = Network(learning, layers, learning.initial(member.seed)).to(device)
            training = Training(spec, network, data, member, rows, steps[index], privacy, index)
            try:
                yield index, training.run()
            except (TrainingError, ValueError) as error:
                yield index, error

    return inside_context(lambda: hardware.exactly(device), outcomes())


def train_by_index(
    spec: Spec, members: Mapping[int, Member], privacy: Privacy, steps: Mapping[int, int]
) -> Iterator[Outcome]:
    """Run `train_many` for numbered members. Each outcome has its member's number instead of its position."""
    numbers = list(members)
    for position, outcome in train_many(spec, list(members.values()), privacy, [steps[number] for number in numbers]):
        yield numbers[position], outcome


def _check_whole(members: Sequence[Member]) -> None:
    """Raise ValueError if a member is a link of a chain."""
    for index, member in enumerate(members):
        if member.returns_state or {member.start, member.until, member.after} != {None}:
            raise ValueError(f"privacy is set and member {index} is a link of a chain; privacy requires a single job")


def _private_form(spec: Spec) -> ByLayers:
    """Return the objective if its layers can provide per-row gradients."""
    if isinstance(spec.learning, ByLayers):
        return spec.learning
    raise ValueError(refusal(spec))


class Training:
    """The private training of one model."""

    def __init__(
        self,
        spec: Spec,
        network: Network,
        data: DeviceData,
        member: Member,
        rows: NDArray[np.int64],
        steps: int,
        privacy: Privacy,
        index: int,
    ) -> None:
        self.spec = spec
        self.learning = network.learning
        self.data = data
        self.member = member
        self.privacy = privacy
        self.index = index
        self.device = data.device
        self.rows = torch.from_numpy(rows).to(self.device)
        self.steps = steps
        self.key = torch.tensor([member_key(member.seed)], device=self.device)
        self.network = network
        self.drawn = 0  # rows drawn in the latest epoch

    def run(self) -> Trained:
        """Train for all epochs. Raises TrainingError if a loss is not finite."""
        history: list[Epoch] = []
        epsilons: list[float] = []

        def after_epoch(epoch: int, sums: Losses) -> None:
            train_loss = float(sums.sum() / self.drawn) if self.drawn else math.nan
            history.append(Epoch(epoch, train_loss, *self._test_scores(epoch)))
            epsilons.append(self._spent())
            if self.spec.watch is not None:
                self.spec.watch([(self.index, epoch)], self.tensors)

        self._prepare()
        fit(range(1, self.spec.recipe.epochs + 1), self._take_steps, after_epoch, self.member.seed)
        weights = {name: tensor[0].cpu().numpy() for name, tensor in self.tensors.items()}
        return Trained(len(history), tuple(history), weights, epsilons=tuple(epsilons))

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The weights by name, (1, *shape)."""
        parameters = dict(self.network.named_parameters())
        return {name: parameters[name].detach()[None] for name in self.learning.weights}

    def _prepare(self) -> None:
        privacy_engine, uniform_sampler = opacus()
        rate = self.member.learning_rate or self.spec.recipe.learning_rate
        optimiser = torch.optim.Adam(self.network.parameters(), rate, eps=self.spec.recipe.epsilon, fused=True)
        stream = generator(self.member.seed, "private rows", torch.device("cpu"))
        sampler = uniform_sampler(
            num_samples=len(self.rows), sample_rate=1 / self.steps, generator=stream, steps=self.steps
        )
        loader: Any = torch.utils.data.DataLoader(
            range(len(self.rows)),  # type: ignore[arg-type]
            batch_sampler=sampler,
            collate_fn=_row_tensor,
            generator=stream,
        )
        size = noise(self.privacy, self.steps, self.spec.recipe.epochs)
        with quiet():
            self.engine = privacy_engine(accountant=ACCOUNTANT)
        # The sampler is already a Poisson sampler. The one in opacus would omit steps if 1 / (1 / steps) < steps.
        # Per-row gradients are never stored: their norms are computed from the inputs and gradients of the layers
        # ("ghost").
        _, self.optimiser, self.criterion, self.loader = self.engine.make_private(
            module=self.network,
            optimizer=optimiser,
            criterion=itself,
            data_loader=loader,
            noise_multiplier=size,
            max_grad_norm=self.privacy.clip,
            loss_reduction="sum",
            poisson_sampling=False,
            noise_generator=generator(self.member.seed, "privacy", self.device),
            grad_sample_mode="ghost",
        )
        share_noise(self.optimiser)

    def _take_steps(self, epoch: int) -> Iterator[Tensor]:
        """Take the steps of an epoch, yielding for each step the sum of the losses of its images."""
        self.drawn = 0
        with quiet():
            for step, positions in enumerate(self.loader, (epoch - 1) * self.steps):
                self.drawn += len(positions)
                yield self._step(self.rows[positions.to(self.device)], step)

    def _step(self, rows: Tensor, step: int) -> Tensor:
        """Take one step on these rows, of which there may be none. Returns the sum of their losses.

        The ranks of a process group share the rows.
        """
        total = self._clipped_gradients(rows, share_rows(0, len(rows)), step)
        self.optimiser.step()  # adds the noise
        add_over_ranks([total])
        return total

    def _clipped_gradients(self, rows: Tensor, share: slice, step: int) -> Tensor:
        """Compute the sum of the clipped gradients of a share of these rows. Returns the sum of their losses."""
        if share.start == share.stop:
            self.optimiser.zero_grad()
            for weight in self.network.parameters():
                weight.grad = torch.zeros_like(weight)
            return torch.zeros((), dtype=torch.float64, device=self.device)
        draws = CounterRng(self.key, torch.tensor([step], device=self.device), share.start)
        batch = Batch(*self.data.rows(rows[None, share]), Mode(True, draws))
        losses: Tensor = self.network(batch)
        self.criterion(losses).backward()
        return losses.detach().double().sum()

    def _test_scores(self, epoch: int) -> tuple[float, float]:
        """Return mean loss and accuracy on the test split, with the same draws as in training without privacy."""
        total = 0.0
        right = 0.0
        with torch.no_grad():
            for start in share_blocks(self.data.test_count, ASSESSED_AT_ONCE):
                mode = Mode(draws=CounterRng(self.key, torch.full_like(self.key, -1 - start)))
                pixels, labels = self.data.test_rows(start, start + ASSESSED_AT_ONCE)
                batch = Batch(pixels[None], labels[None], mode)
                losses, correct = self.learning.evaluate_rows(self.tensors, batch)
                total += float(losses[0].double().sum())
                right += math.nan if correct is None else float(correct[0].sum())
        sums = torch.tensor([total, right], dtype=torch.float64)
        add_over_ranks([sums])
        total, right = sums.tolist()
        if not math.isfinite(total):
            raise not_finite("validation loss", f"after epoch {epoch}", self.member.seed)
        return total / self.data.test_count, right / self.data.test_count

    def _spent(self) -> float:
        return spent(tuple(self.engine.accountant.history), self.privacy.delta)


def share_noise(optimiser: Any) -> None:
    """Let the first rank of a process group add the noise of a step of opacus, and add up the gradients of all ranks.

    GPUs of different models draw different noise from the same seed.
    """
    add_noise = optimiser.add_noise

    def add_noise_once() -> None:
        if current_ranks().is_first:
            add_noise()
        else:
            for weight in optimiser.params:
                weight.grad = weight.summed_grad.view_as(weight)
        add_over_ranks([weight.grad for weight in optimiser.params])

    optimiser.add_noise = add_noise_once


def noise(privacy: Privacy, steps: int, epochs: int) -> float:
    """Return the standard deviation of the noise as a multiple of `clip`.

    Raises ValueError if no amount of noise suffices.
    """
    try:
        with quiet():
            return _noise(privacy.epsilon, privacy.delta, steps, epochs)
    except ValueError:
        raise ValueError(
            f"epsilon is {privacy.epsilon:g}, which is too small for {steps * epochs} steps at delta {privacy.delta:g}"
        ) from None


@lru_cache(64)
def _noise(epsilon: float, delta: float, steps: int, epochs: int) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    multiplier: float = get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=delta,
        sample_rate=1 / steps,
        steps=steps * epochs,
        accountant=ACCOUNTANT,
        epsilon_tolerance=TOLERANCE * epsilon,
    )
    return multiplier


@lru_cache(4096)
def spent(history: tuple[tuple[float, float, int], ...], delta: float) -> float:
    """Return epsilon at this delta after steps given as (noise, sampling rate, number of steps).

    The result is at most 0.01 too high.
    """
    from opacus.accountants import create_accountant

    accountant = create_accountant(mechanism=ACCOUNTANT)
    accountant.history = list(history)
    with quiet():
        return float(accountant.get_epsilon(delta))


def opacus() -> tuple[Any, Any]:
    """Return the engine and the sampler from opacus. Raises ValueError if it is not installed."""
    try:
        from opacus import PrivacyEngine
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    except ImportError:
        raise ValueError(f"privacy is set, which requires {OPACUS.advice}") from None
    return PrivacyEngine, UniformWithReplacementSampler


def quiet() -> warnings.catch_warnings[None]:
    """Silence warnings within the block.

    Opacus warns that its generator is not cryptographic, torch that no hook receives the images' gradients, and NumPy
    about the logarithm of 0 if a row has probability 1.
    """
    return warnings.catch_warnings(action="ignore")


def generator(seed: int, stream: str, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(seeds.derive(seed, stream))


def _row_tensor(places: list[int]) -> Tensor:
    """Return the rows of a minibatch, (rows,) int64. There may be none."""
    return torch.tensor(places, dtype=torch.int64)


def itself(losses: Tensor) -> Tensor:
    return losses
