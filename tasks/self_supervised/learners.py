"""The learner of each criterion: its loss, and its networks besides the encoder."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.numerics.seeds import drawn_from
from tasks.self_supervised.networks import Network, perceptron
from tasks.self_supervised.pretraining_config import BYOL, DINO, BarlowTwins, Criterion, SimCLR, VICReg
from tasks.worker.ranks import add_over_ranks, total_over_ranks

VICREG_EPSILON = 1e-4


def vicreg(config: VICReg, first: Tensor, second: Tensor) -> Tensor:
    """Return the loss for the embeddings of two views, each (n, d) with n at least 2.

    invariance mean (a - b)^2 + variance [v(a) + v(b)] / 2 + covariance [c(a) + c(b)]

    v(z) = mean_j max(0, 1 - sqrt(var_j z + 1e-4)) and c(z) = sum_{i != j} cov_ij(z)^2 / d, variances and covariances
    over n - 1. Bardes, Ponce & LeCun 2022, "VICReg", eqs. 1, 2, 4 to 6. As in their code, the squares are averaged over
    n and d, and v has the factor 1/2; eq. 6 has neither.
    """
    total = config.invariance * functional.mse_loss(first, second)
    for view in (first, second):
        centred = view - view.mean(0)
        variances = centred.square().sum(0) / (len(view) - 1)
        total = total + config.variance / 2 * (1 - (variances + VICREG_EPSILON).sqrt()).relu().mean()
        total = total + config.covariance * covariance(centred, variances)
    return total


def covariance(centred: Tensor, variances: Tensor) -> Tensor:
    """Return c(z) of embeddings (n, d) with mean 0, given their variances (d,)."""
    n, d = centred.shape
    # |Z'Z| = |ZZ'|, so the smaller product is used: for (1,024, 8,192), 1/8 of the work and 1/64 of the memory.
    products = centred.T @ centred if n >= d else centred @ centred.T
    return (products.square().sum() / (n - 1) ** 2 - torch.dot(variances, variances)) / d


def simclr(config: SimCLR, first: Tensor, second: Tensor) -> Tensor:
    """Return the loss for the embeddings of two views, each (n, d), in nats.

    It is the mean over all 2 n views i, with partner j, of

    -log [exp(cos(z_i, z_j) / t) / sum_{k != i} exp(cos(z_i, z_k) / t)]

    Chen et al. 2020, "A simple framework for contrastive learning of visual representations", eq. 1 and algorithm 1.
    """
    n = len(first)
    unit = functional.normalize(torch.cat([first, second]), dim=1)
    similarities = unit @ unit.T / config.temperature
    itself = torch.eye(2 * n, dtype=torch.bool, device=unit.device)
    partners = torch.arange(2 * n, device=unit.device).roll(n)
    return functional.cross_entropy(similarities.masked_fill(itself, -torch.inf), partners)


BARLOW_EPSILON = 1e-5  # epsilon of batch norm, with which the authors standardise embeddings


def barlow_twins(config: BarlowTwins, first: Tensor, second: Tensor) -> Tensor:
    """Return the loss for the embeddings of two views, each (n, d).

    sum_i (1 - C_ii)^2 + redundancy sum_{i != j} C_ij^2

    where C_ij is the correlation, over n, of dimension i of one view with dimension j of the other. Zbontar et al.
    2021, "Barlow Twins", eqs. 1 and 2; computed from standardised embeddings, as in their algorithm 1.
    """
    n, d = first.shape
    a, b = standardise(first), standardise(second)
    diagonal = (a * b).sum(0) / n
    # |A'B|^2 = <AA', BB'>, so the smaller factors are used.
    if n >= d:
        squares = (a.T @ b).square().sum()
    else:
        squares = ((a @ a.T) * (b @ b.T)).sum()
    on = (1 - diagonal).square().sum()
    off = squares / n**2 - diagonal.square().sum()
    return on + config.redundancy * off


def standardise(embeddings: Tensor) -> Tensor:
    """Standardise embeddings (n, d) to mean 0 and variance 1 (over n) in each dimension."""
    centred = embeddings - embeddings.mean(0)
    return centred / (centred.square().mean(0) + BARLOW_EPSILON).sqrt()


def byol(predictions: tuple[Tensor, Tensor], targets: tuple[Tensor, Tensor]) -> Tensor:
    """Return the loss for both views' predictions and the teacher's embeddings of both views, each (n, d).

    mean [2 - 2 cos(p_1, z_2)] + mean [2 - 2 cos(p_2, z_1)]

    Grill et al. 2020, "Bootstrap your own latent", eq. 2, made symmetric as in the paper.
    """
    return sum(
        (2 - 2 * functional.cosine_similarity(prediction, target, dim=1)).mean()
        for prediction, target in zip(predictions, reversed(targets), strict=True)
    )  # type: ignore[return-value]


def teacher_momentum(first: float, progress: float) -> float:
    """Return the teacher's momentum at this fraction of the schedule, which rises from `first` to at most 1.

    1 - (1 - first) (cos(pi progress) + 1) / 2. Grill et al. 2020, section 3.3.
    """
    return min(1.0, 1 - (1 - first) * (math.cos(math.pi * min(progress, 1.0)) + 1) / 2)


def dino(
    config: DINO,
    students: tuple[Tensor, Tensor],
    teachers: tuple[Tensor, Tensor],
    centre: Tensor,
    temperature: float,
) -> Tensor:
    """Return the loss for the student's and the teacher's embeddings of both views, each (n, d), in nats.

    It is the mean, over images and over both pairs of different views, of

    -sum_k softmax((t - centre) / temperature)_k log softmax(s / student temperature)_k

    Caron et al. 2021, "Emerging properties in self-supervised vision transformers", eqs. 1 and 2, with two views.
    """
    total = students[0].new_zeros(())
    for student, teacher in zip(students, reversed(teachers), strict=True):
        target = functional.softmax((teacher - centre) / temperature, dim=1)
        total = total - (target * functional.log_softmax(student / config.temperature, dim=1)).sum(1).mean() / 2
    return total


Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Moment:
    """The position of a step within its training."""

    epoch: int  # from 1
    progress: float  # fraction of the schedule that is complete after the step, from 0 to 1


class Learner(Protocol):
    """The modules that a criterion trains, and the loss for views of images."""

    modules: nn.ModuleDict  # the encoder and other trained modules
    views: int
    coupled: bool  # whether the loss of an image depends on the other images in its minibatch

    def embed(self, images: Tensor) -> Tensor:
        """Return the input of the loss, (views, n, d), for images (views n, 3, r, r), one view after another."""

    def targets(self, images: Tensor) -> Pair | None:
        """Return the teacher's embeddings of these images, view by view, or None without a teacher."""

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:
        """Return the mean loss of images with these labels, given the results of `embed` and `targets`."""

    def after_step(self, moment: Moment) -> None:
        """Update the learner after an optimiser step."""

    def extra_state(self) -> Mapping[str, Tensor]:
        """Return the tensors that a checkpoint needs in addition to the trained modules."""


def learner(criterion: Criterion, network: Network, projector: tuple[int, ...], seed: int) -> Learner:
    """Return a criterion's learner. The initial weights of its other networks depend only on the seed."""
    match criterion:
        case VICReg():
            return Joint(network, partial(vicreg, criterion))
        case SimCLR():
            return Joint(network, partial(simclr, criterion))
        case BarlowTwins():
            return Joint(network, partial(barlow_twins, criterion))
        case BYOL():
            with drawn_from(seed, "predictor", device=torch.device("cpu")):
                predictor = perceptron(projector[-1], criterion.predictor or projector)
            return Predicting(criterion, network, predictor)
        case DINO():
            return Distilling(criterion, network, projector[-1])
        case _:
            return Classifying(nn.ModuleDict({"encoder": network}), network)


class Joint:
    """Both views pass through one encoder. As in the released code, batch norm sees both in one minibatch."""

    views = 2
    coupled = True

    def __init__(self, network: Network, loss_of: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.modules = nn.ModuleDict({"encoder": network})
        self.network = network
        self.loss_of = loss_of

    def embed(self, images: Tensor) -> Tensor:
        return _pair_views(self.network(images))

    def targets(self, images: Tensor) -> Pair | None:  # noqa: ARG002
        return None

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:  # noqa: ARG002
        return self.loss_of(embeddings[0], embeddings[1])

    def after_step(self, moment: Moment) -> None:
        """Do nothing, since there is nothing to update."""

    def extra_state(self) -> Mapping[str, Tensor]:
        return {}


class Teacher:
    """A moving average of an encoder's parameters. Batch norm uses the statistics of the minibatch."""

    def __init__(self, network: Network) -> None:
        self.copy = copy.deepcopy(network).requires_grad_(False)
        self.slow: list[Tensor] = list(self.copy.parameters())
        self.fast: list[Tensor] = list(network.parameters())

    def embed(self, images: Tensor) -> Pair:
        with torch.no_grad():
            first, second = self.copy(images).float().chunk(2)
        return first, second

    def follow(self, momentum: float) -> None:
        """Update each parameter: t <- momentum t + (1 - momentum) s."""
        with torch.no_grad():
            torch._foreach_lerp_(self.slow, self.fast, 1 - momentum)

    def parameters(self) -> Mapping[str, Tensor]:
        return {f"teacher.{name}": parameter for name, parameter in self.copy.named_parameters()}


class Predicting:
    """BYOL: a predictor on top of the encoder, trained against a teacher."""

    views = 2
    coupled = False

    def __init__(self, config: BYOL, network: Network, predictor: nn.Module) -> None:
        self.config = config
        self.modules = nn.ModuleDict({"encoder": network, "predictor": predictor})
        self.teacher = Teacher(network)

    def embed(self, images: Tensor) -> Tensor:
        return _pair_views(self.modules["predictor"](self.modules["encoder"](images)))

    def targets(self, images: Tensor) -> Pair | None:
        return self.teacher.embed(images)

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:  # noqa: ARG002
        assert targets is not None
        return byol((embeddings[0], embeddings[1]), targets)

    def after_step(self, moment: Moment) -> None:
        self.teacher.follow(teacher_momentum(self.config.momentum, moment.progress))

    def extra_state(self) -> Mapping[str, Tensor]:
        return self.teacher.parameters()


class Distilling:
    """DINO: the student matches a teacher's distributions, centred by a moving average of the teacher's outputs."""

    views = 2
    coupled = False

    def __init__(self, config: DINO, network: Network, width: int) -> None:
        self.config = config
        self.modules = nn.ModuleDict({"encoder": network})
        self.teacher = Teacher(network)
        device = next(network.parameters()).device
        self.centre = torch.zeros(width, device=device)
        self.target_sums: list[Tensor] = []  # sums over the images of the current step
        self.pictures = 0

    def embed(self, images: Tensor) -> Tensor:
        return _pair_views(self.modules["encoder"](images))

    def targets(self, images: Tensor) -> Pair | None:
        return self.teacher.embed(images)

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:  # noqa: ARG002
        assert targets is not None
        self.target_sums = [*self.target_sums, *(target.sum(0) for target in targets)]
        self.pictures += 2 * len(targets[0])
        temperature = self.config.teacher_temperature(moment.epoch)
        return dino(self.config, (embeddings[0], embeddings[1]), targets, self.centre, temperature)

    def after_step(self, moment: Moment) -> None:
        total = torch.stack(self.target_sums).sum(0)
        add_over_ranks([total])
        mean = total / total_over_ranks(self.pictures)
        self.centre.lerp_(mean, 1 - self.config.centre_momentum)
        self.target_sums = []
        self.pictures = 0
        self.teacher.follow(teacher_momentum(self.config.momentum, moment.progress))

    def extra_state(self) -> Mapping[str, Tensor]:
        return {**self.teacher.parameters(), "centre": self.centre}


class Classifying:
    """Classification of the first view by `logits`, as in the released code."""

    views = 1
    coupled = False

    def __init__(self, modules: nn.ModuleDict, logits: Callable[[Tensor], Tensor]) -> None:
        self.modules = modules
        self.logits = logits

    def embed(self, images: Tensor) -> Tensor:
        return self.logits(images).float()[None]

    def targets(self, images: Tensor) -> Pair | None:  # noqa: ARG002
        return None

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:  # noqa: ARG002
        return functional.cross_entropy(embeddings[0], labels)

    def after_step(self, moment: Moment) -> None:
        """Do nothing, since there is nothing to update."""

    def extra_state(self) -> Mapping[str, Tensor]:
        return {}


def tuning(network: Network, classes: int, seed: int) -> Classifying:
    """Return a learner that trains a linear layer together with the backbone. The projector does not change."""
    with drawn_from(seed, "linear layer", device=torch.device("cpu")):
        layer = nn.Linear(network.features, classes)
    network.projector.requires_grad_(False)
    modules = nn.ModuleDict({"encoder": network, "layer": layer})
    return Classifying(modules, lambda images: modules["layer"](network.backbone(images)))


def _pair_views(embeddings: Tensor) -> Tensor:
    """Reshape (2 n, d) to (2, n, d), in float32."""
    return embeddings.float().view(2, -1, embeddings.shape[1])
