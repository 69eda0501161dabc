"""What is learnt from the views of a minibatch, by criterion: the networks beside the encoder, and the loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.numerics.torch_draws import drawn_from
from tasks.self_supervised.criterion import BYOL, DINO, BarlowTwins, Criterion, SimCLR, VICReg
from tasks.self_supervised.losses import barlow_twins, byol, dino, simclr, teacher_momentum, vicreg
from tasks.self_supervised.networks import Network, perceptron

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Moment:
    """Where in its training a step is."""

    epoch: int  # from 1
    progress: float  # of the schedule, from 0 to 1, at the step's end


class Learner(Protocol):
    """The modules that a criterion trains, and the loss of some pictures' views."""

    trained: nn.ModuleDict  # the encoder, and what is trained beside it
    views: int
    coupled: bool  # whether the loss of a picture depends on the others of its minibatch

    def embed(self, images: Tensor) -> Tensor:
        """What the loss is of: (views, n, d) for images (views n, 3, r, r), one view after another."""

    def targets(self, images: Tensor) -> Pair | None:
        """What a teacher makes of these images, view by view; None where there is no teacher."""

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:
        """The mean loss of pictures of these classes, given what `embedded` and `targets` made of their images."""

    def after_step(self, moment: Moment) -> None:
        """What follows a step of the optimiser."""

    def state_beside(self) -> Mapping[str, Tensor]:
        """What a state holds beside the trained modules."""


def learner(criterion: Criterion, network: Network, projector: tuple[int, ...], seed: int) -> Learner:
    """The learner of a criterion; what is begun at random beside the network is a function of the seed."""
    match criterion:
        case VICReg():
            return Joint(network, partial(vicreg, criterion))
        case SimCLR():
            return Joint(network, partial(simclr, criterion))
        case BarlowTwins():
            return Joint(network, partial(barlow_twins, criterion))
        case BYOL():
            with drawn_from(seed, "predictor", place=torch.device("cpu")):
                predictor = perceptron(projector[-1], criterion.predictor or projector)
            return Predicting(criterion, network, predictor)
        case DINO():
            return Distilling(criterion, network, projector[-1])
        case _:
            return Classifying(nn.ModuleDict({"encoder": network}), network)


class Joint:
    """Two views that go through one encoder; batch norm sees both in one minibatch, as the released code does it."""

    views, coupled = 2, True

    def __init__(self, network: Network, loss_of: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.trained = nn.ModuleDict({"encoder": network})
        self.network, self.loss_of = network, loss_of

    def embed(self, images: Tensor) -> Tensor:
        return pair_views(self.network(images))

    def targets(self, images: Tensor) -> Pair | None:  # noqa: ARG002
        return None

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:  # noqa: ARG002
        return self.loss_of(embeddings[0], embeddings[1])

    def after_step(self, moment: Moment) -> None:
        """Nothing follows."""

    def state_beside(self) -> Mapping[str, Tensor]:
        return {}


class Teacher:
    """A slow copy of an encoder: its parameters follow the encoder's, and batch norm takes those of the minibatch."""

    def __init__(self, network: Network) -> None:
        self.copy = copy.deepcopy(network).requires_grad_(False)
        self.slow: list[Tensor] = list(self.copy.parameters())
        self.fast: list[Tensor] = list(network.parameters())

    def embed(self, images: Tensor) -> Pair:
        with torch.no_grad():
            first, second = self.copy(images).float().chunk(2)
        return first, second

    def follow(self, momentum: float) -> None:
        """t <- momentum t + (1 - momentum) s for each parameter."""
        with torch.no_grad():
            torch._foreach_lerp_(self.slow, self.fast, 1 - momentum)

    def parameters(self) -> Mapping[str, Tensor]:
        return {f"teacher.{name}": parameter for name, parameter in self.copy.named_parameters()}


class Predicting:
    """BYOL: a predictor on the encoder, against a teacher."""

    views, coupled = 2, False

    def __init__(self, config: BYOL, network: Network, predictor: nn.Module) -> None:
        self.config = config
        self.trained = nn.ModuleDict({"encoder": network, "predictor": predictor})
        self.teacher = Teacher(network)

    def embed(self, images: Tensor) -> Tensor:
        return pair_views(self.trained["predictor"](self.trained["encoder"](images)))

    def targets(self, images: Tensor) -> Pair | None:
        return self.teacher.embed(images)

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:  # noqa: ARG002
        assert targets is not None
        return byol((embeddings[0], embeddings[1]), targets)

    def after_step(self, moment: Moment) -> None:
        self.teacher.follow(teacher_momentum(self.config.momentum, moment.progress))

    def state_beside(self) -> Mapping[str, Tensor]:
        return self.teacher.parameters()


class Distilling:
    """DINO: the distributions of a teacher, whose centre follows what it says of each step's pictures."""

    views, coupled = 2, False

    def __init__(self, config: DINO, network: Network, width: int) -> None:
        self.config = config
        self.trained = nn.ModuleDict({"encoder": network})
        self.teacher = Teacher(network)
        place = next(network.parameters()).device
        self.centre = torch.zeros(width, device=place)
        self.said: list[Tensor] = []  # sums over pictures of this step
        self.pictures = 0

    def embed(self, images: Tensor) -> Tensor:
        return pair_views(self.trained["encoder"](images))

    def targets(self, images: Tensor) -> Pair | None:
        return self.teacher.embed(images)

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:  # noqa: ARG002
        assert targets is not None
        self.said += [target.sum(0) for target in targets]
        self.pictures += 2 * len(targets[0])
        temperature = self.config.teacher_temperature(moment.epoch)
        return dino(self.config, (embeddings[0], embeddings[1]), targets, self.centre, temperature)

    def after_step(self, moment: Moment) -> None:
        mean = torch.stack(self.said).sum(0) / self.pictures
        self.centre.lerp_(mean, 1 - self.config.centre)
        self.said, self.pictures = [], 0
        self.teacher.follow(teacher_momentum(self.config.momentum, moment.progress))

    def state_beside(self) -> Mapping[str, Tensor]:
        return {**self.teacher.parameters(), "centre": self.centre}


class Classifying:
    """Classes of the first view alone, as the released code does it, by `logits` of its images."""

    views, coupled = 1, False

    def __init__(self, trained: nn.ModuleDict, logits: Callable[[Tensor], Tensor]) -> None:
        self.trained, self.logits = trained, logits

    def embed(self, images: Tensor) -> Tensor:
        return self.logits(images).float()[None]

    def targets(self, images: Tensor) -> Pair | None:  # noqa: ARG002
        return None

    def loss(self, embeddings: Tensor, targets: Pair | None, labels: Tensor, moment: Moment) -> Tensor:  # noqa: ARG002
        return functional.cross_entropy(embeddings[0], labels)

    def after_step(self, moment: Moment) -> None:
        """Nothing follows."""

    def state_beside(self) -> Mapping[str, Tensor]:
        return {}


def tuning(network: Network, classes: int, seed: int) -> Classifying:
    """Classes by a linear layer on the backbone, which is trained with it; the projector is left as it is."""
    with drawn_from(seed, "linear layer", place=torch.device("cpu")):
        layer = nn.Linear(network.features, classes)
    network.projector.requires_grad_(False)
    trained = nn.ModuleDict({"encoder": network, "layer": layer})
    return Classifying(trained, lambda images: trained["layer"](network.backbone(images)))


def pair_views(embeddings: Tensor) -> Tensor:
    """(2 n, d) as (2, n, d), in float32."""
    return embeddings.float().view(2, -1, embeddings.shape[1])
