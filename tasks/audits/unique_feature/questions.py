"""The questions of the audit, each with the settings that affect its answer.

`Pairs`, `EpochScores` and `UnitResponses` train pairs of networks, one with the canary and one without. `Panel` and
`Given` evaluate single models. `ProbePictures` only shows the probe images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from tasks.audits.unique_feature.given_models import AnswerRank, FirstLayerRank, Given
from tasks.audits.unique_feature.training_config import (
    CanaryTraining,
    FeatureTraining,
    FollowedTraining,
    Mlp1Training,
)
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily, Family, Feature
from tasks.programs.config import Program
from tasks.training.classifier import Training

ASKED_RESULTS = ("model", "probabilities")  # results of a program that say how it classifies other images
MeasureName = Literal["scores", "family", "ranks"]


@dataclass(frozen=True)
class SomeCanaries:
    """The range of the number of canaries: at least one, because models without canaries are another question."""

    words = "at least 1; question=panel evaluates models trained on the unchanged data"

    def holds(self, value: int) -> bool:
        return value >= 1


# How canaries are chosen


@dataclass(frozen=True)
class RandomChoice(Ranged):
    """Canaries are drawn at random."""

    tag: ClassVar[str] = "random"
    neighbours_left_out: Annotated[int, AtLeast(0)] = 0
    """Ours: number of training images, nearest to the canary's image in Euclidean distance, that both training runs of
    a pair leave out; among equally near images, the first.
    """


@dataclass(frozen=True)
class SelfInfluenceChoice(Ranged):
    """Canaries are the images with the highest and the lowest self-influence."""

    tag: ClassVar[str] = "self-influence"
    with_feature: bool = False
    """Whether to also compute self-influence with the feature in the image, as in section 3.3."""


Choice = RandomChoice | SelfInfluenceChoice


# Questions that train networks


@dataclass(frozen=True)
class TrainedHere(Ranged):
    """Training data for the networks."""

    data: Dataset = Dataset("mnist")
    """Training images."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Ours: number of training images, counted from the first; 0: all."""


@dataclass(frozen=True)
class CanaryPairs(TrainedHere):
    """Pairs of networks: one trained with a canary, and a control model trained without it."""

    canaries: Annotated[int, SomeCanaries()] = 100
    """Number of canaries, one per pair of training runs."""
    choice: RandomChoice | SelfInfluenceChoice = RandomChoice()
    """Choice of canaries: at random, or those with the highest and the lowest self-influence."""
    burnt: Feature | None = None
    """Ours: feature that the canaries carry in a control experiment; none: the audited feature."""
    seeds: Annotated[int, AtLeast(1)] = 1
    """Number of training seeds per canary."""

    def conflicts(self) -> Iterator[str]:
        if isinstance(self.training, Program) and not isinstance(self.choice, RandomChoice):
            yield f"training is {self.training.tag}; choice must be random, since self-influence needs gradients"
        if self.training.guarantee is not None and self.choice != RandomChoice():
            yield (
                "privacy is given, but epsilon does not cover a choice of images that depends on the canary; choice "
                "must be random and neighbours_left_out 0"
            )

    @property
    def one_seed(self) -> bool:
        """Whether all canaries share their training seeds."""
        return False

    @property
    def training(self) -> CanaryTraining | Program:
        """Training of the networks."""
        raise NotImplementedError

    @property
    def recipe(self) -> CanaryTraining:
        """The recipe of networks that Engram trains. Raises ValueError if a program trains them."""
        if isinstance(self.training, Program):
            raise ValueError(f"training is {self.training.tag}; it must be classifier for this question")
        return self.training

    @property
    def clean_training(self) -> Training:
        """The training without any canary, with seed 0."""
        return self.recipe.clean(self.data, self.examples)

    @property
    def neighbours_left_out(self) -> int:
        """The number of neighbours of the canary's clean image that both training runs leave out."""
        if isinstance(self.choice, RandomChoice):
            return self.choice.neighbours_left_out
        return 0


@dataclass(frozen=True)
class Pairs(CanaryPairs):
    """Is the feature memorised in this training procedure? Pairs of networks are compared."""

    tag: ClassVar[str] = "pairs"
    one_seed: bool = False
    """Whether all canaries share their training seeds."""
    drawn: bool = False
    """Ours: whether every canary gets its own feature, drawn from the family; its rank is then exact."""
    training: FeatureTraining | Program = FeatureTraining()
    """Training of the networks: a classifier by Engram, or your own program, which returns a model or probabilities."""
    measures: tuple[MeasureName, ...] = ("scores",)
    """Measurements: scores, outputs for the whole family, exact ranks."""
    evaluations: Annotated[int, AtLeast(1)] = 1
    """Number of evaluations, each with newly drawn random patches."""
    family: Family = Family()
    """Ours: other features among which the feature is ranked."""
    probes: Annotated[int, AtLeast(0)] = 1000
    """Ours: number of probe images for the family's scores, counted from the first; 0: all."""
    beside_plain: bool = False
    """Whether to compare the regularised network with the same network without regularisers."""
    stopping_level: Annotated[float, Share(one=False)] = 0.0
    """Ours: largest false alarm rate of a run that looks after every pair and ends once it answers memorised; 0: the
    run trains all pairs.
    """

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if isinstance(self.training, Program) and self.training.returns not in ASKED_RESULTS:
            yield (
                f"training.returns is {self.training.returns}; it must be {' or '.join(ASKED_RESULTS)}, since models "
                "are evaluated on other images"
            )
        if self.beside_plain and not (isinstance(self.training, FeatureTraining) and self.training.is_regularised):
            yield "beside_plain is on; it must be off for a network without regularisers"
        if self.stopping_level and (required_settings := self._settings_for_bets()):
            yield (
                f"stopping_level={self.stopping_level:g} (--until decided) needs pairs with independent exact ranks; "
                f"add {', and '.join(required_settings)}"
            )

    def _settings_for_bets(self) -> list[str]:
        """Return the missing settings that would give each pair an exact rank, independent of the earlier ones."""
        settings = []
        if not self.drawn:
            settings.append("drawn=true, so that each canary has its own drawn feature")
        if not isinstance(self.choice, RandomChoice):
            settings.append("choice=random, so that the first canaries are a random sample")
        if self.seeds != 1 or self.one_seed:
            settings.append("seeds=1 one_seed=false, so that pairs are independent")
        return settings

    def plain(self) -> Pairs:
        """Return the same pairs without regularisers."""
        assert isinstance(self.training, FeatureTraining)
        return replace(self, training=self.training.without_regularisers(), beside_plain=False)


@dataclass(frozen=True)
class EpochScores(CanaryPairs):
    """When does the response to the feature arise? Pairs of networks are evaluated after every epoch."""

    tag: ClassVar[str] = "course"
    training: FollowedTraining = FollowedTraining()
    """Training of the networks."""


@dataclass(frozen=True)
class UnitResponses(CanaryPairs):
    """Which hidden units respond only to the feature? Pairs of networks are compared unit by unit."""

    tag: ClassVar[str] = "latents"
    one_seed: bool = False
    """Whether all canaries share their training seeds."""
    training: Mlp1Training = Mlp1Training()
    """Training of the networks."""


@dataclass(frozen=True)
class Panel(TrainedHere):
    """Do networks trained on the unchanged data know the feature? They are evaluated like third-party models."""

    tag: ClassVar[str] = "panel"
    seeds: Annotated[int, AtLeast(1)] = 1
    """Number of networks, each with its own training seed."""
    training: FeatureTraining = FeatureTraining()
    """Training of the networks."""
    family: AskedFamily = AskedFamily()
    """Ours: other features among which the feature is ranked."""
    probes: Annotated[int, AtLeast(0)] = 1000
    """Ours: number of probe images, counted from the first; 0: all."""
    judged_by: AnswerRank | FirstLayerRank = AnswerRank()
    """Deciding rank: by the networks' outputs, or by the weights of their first layer."""

    @property
    def clean_training(self) -> Training:
        """The training of a network, with seed 0."""
        return self.training.clean(self.data, self.examples)


@dataclass(frozen=True)
class ProbePictures(Ranged):
    """What does the feature look like in probe images, and how much does it change them? Nothing is trained."""

    tag: ClassVar[str] = "pictures"
    data: Dataset = Dataset("mnist")
    """Training images whose shape the probe images get."""


SingleModels = Panel | Given
Question = Pairs | EpochScores | UnitResponses | Panel | Given | ProbePictures
