"""The questions of the audit, each with the settings that have an effect on its answer.

`Pairs`, `EpochScores` and `UnitResponses` train pairs of networks, one with the canary and one without. `Panel` and
`Given` evaluate single models. `ProbePictures` shows the probe images alone.
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
from tasks.training.classifier import Training

MeasureName = Literal["scores", "family", "ranks"]


@dataclass(frozen=True)
class SomeCanaries:
    """The range of the number of canaries: at least one, since models without any are another question."""

    words = "at least 1; question=panel evaluates models that are trained on the unchanged data"

    def holds(self, value: int) -> bool:
        return value >= 1


# How canaries are chosen


@dataclass(frozen=True)
class RandomChoice(Ranged):
    """Canaries are drawn at random."""

    tag: ClassVar[str] = "random"
    neighbours_left_out: Annotated[int, AtLeast(0)] = 0
    """Ours: the number of training images that both trainings of a pair leave out: those nearest to the canary's own,
    by the Euclidean distance of pixels, of equally near ones the first."""


@dataclass(frozen=True)
class SelfInfluenceChoice(Ranged):
    """Canaries are the images of the highest and lowest self-influence."""

    tag: ClassVar[str] = "self-influence"
    with_feature: bool = False
    """Whether the image at either end is traced again with the feature, as in section 3.3."""


Choice = RandomChoice | SelfInfluenceChoice


# Questions that train


@dataclass(frozen=True)
class TrainedHere(Ranged):
    """The images that networks are trained on."""

    data: Dataset = Dataset("mnist")
    """The images to train on."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Ours: train on the first training images, this number of them; 0: all."""


@dataclass(frozen=True)
class CanaryPairs(TrainedHere):
    """Pairs of networks, of which one is trained with a canary and its twin without."""

    canaries: Annotated[int, SomeCanaries()] = 100
    """Training images that carry the feature, one for each pair of trainings."""
    choice: RandomChoice | SelfInfluenceChoice = RandomChoice()
    """How canaries are chosen: at random, or those of highest and lowest self-influence."""
    burnt: Feature | None = None
    """Ours: what the canaries carry instead of the feature asked about; none: the same. Another one makes a null."""
    seeds: Annotated[int, AtLeast(1)] = 1
    """Training seeds for each canary."""

    def conflicts(self) -> Iterator[str]:
        if self.training.guarantee is not None and self.choice != RandomChoice():
            yield (
                "privacy is given, and epsilon does not count what the choice of images says of the canary: "
                "choice must be random and neighbours_left_out 0"
            )

    @property
    def one_seed(self) -> bool:
        """Whether all canaries share their training seeds."""
        return False

    @property
    def training(self) -> CanaryTraining:
        """How the networks are trained."""
        raise NotImplementedError

    @property
    def clean_training(self) -> Training:
        """The training without any canary, with seed 0."""
        return self.training.clean(self.data, self.examples)

    @property
    def neighbours_left_out(self) -> int:
        """How many neighbours of its clean image both trainings of a canary leave out."""
        return self.choice.neighbours_left_out if isinstance(self.choice, RandomChoice) else 0


@dataclass(frozen=True)
class Pairs(CanaryPairs):
    """Is the feature memorised in this training procedure? Pairs of networks are compared."""

    tag: ClassVar[str] = "pairs"
    one_seed: bool = False
    """Whether all canaries share their training seeds."""
    drawn: bool = False
    """Ours: whether every canary carries, and is asked about, a feature of its own drawn from the family; ranks are
    then exact."""
    training: FeatureTraining = FeatureTraining()
    """How the networks are trained."""
    measures: tuple[MeasureName, ...] = ("scores",)
    """What is measured."""
    evaluations: Annotated[int, AtLeast(1)] = 1
    """How often every evaluation is drawn anew."""
    family: Family = Family()
    """Ours: the other features among which a feature is ranked."""
    probes: Annotated[int, AtLeast(0)] = 1000
    """Ours: the number of probe images for the family's scores, the first ones; 0: all."""
    beside_plain: bool = False
    """Whether the regularised network is compared with the same one without its regularisers."""
    stopping_level: Annotated[float, Share(one=False)] = 0.0
    """Ours: the probability, at most, of accusing a procedure that keeps nothing, though the run looks after every pair
    and ends once it accuses; 0: the run goes to its end."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if self.beside_plain and not self.training.is_regularised:
            yield "beside_plain is on; it must be off for a network without a regulariser"
        if self.stopping_level and (missing := self._settings_for_bets()):
            yield (
                f"a run ends once it is decided (--until decided, stopping_level={self.stopping_level:g}), which takes "
                f"pairs with exact ranks of their own; add {', and '.join(missing)}"
            )

    def _settings_for_bets(self) -> list[str]:
        """The missing settings with which each pair has an exact rank, independent of those before it."""
        settings = []
        if not self.drawn:
            settings.append("drawn=true, so that every canary has a feature drawn from its family")
        if not isinstance(self.choice, RandomChoice):
            settings.append("choice=random, so that fewer canaries are the first")
        if self.seeds != 1 or self.one_seed:
            settings.append("seeds=1 one_seed=false, so that every pair is a sample")
        return settings

    def plain(self) -> Pairs:
        """The same pairs without regularisers."""
        return replace(self, training=self.training.without_regularisers(), beside_plain=False)


@dataclass(frozen=True)
class EpochScores(CanaryPairs):
    """When does the response to the feature arise? Pairs of networks are evaluated after every epoch."""

    tag: ClassVar[str] = "course"
    training: FollowedTraining = FollowedTraining()
    """How the networks are trained."""


@dataclass(frozen=True)
class UnitResponses(CanaryPairs):
    """Which hidden units respond to the feature alone? Pairs of networks are compared unit by unit."""

    tag: ClassVar[str] = "latents"
    one_seed: bool = False
    """Whether all canaries share their training seeds."""
    training: Mlp1Training = Mlp1Training()
    """How the networks are trained."""


@dataclass(frozen=True)
class Panel(TrainedHere):
    """Do networks that are trained on the unchanged data know the feature? They are evaluated as given models are."""

    tag: ClassVar[str] = "panel"
    seeds: Annotated[int, AtLeast(1)] = 1
    """Networks, each with a training seed of its own."""
    training: FeatureTraining = FeatureTraining()
    """How the networks are trained."""
    family: AskedFamily = AskedFamily()
    """Ours: the other features among which the feature is ranked."""
    probes: Annotated[int, AtLeast(0)] = 1000
    """Ours: the number of probe images, the first ones; 0: all."""
    judged_by: AnswerRank | FirstLayerRank = AnswerRank()
    """The rank that decides: by the networks' answers, or by the weights of their first layer."""

    @property
    def clean_training(self) -> Training:
        """The training of a network, with seed 0."""
        return self.training.clean(self.data, self.examples)


@dataclass(frozen=True)
class ProbePictures(Ranged):
    """How does the feature look in the probe images, and how much does it change them? Nothing is trained."""

    tag: ClassVar[str] = "pictures"
    data: Dataset = Dataset("mnist")
    """The training images whose shape the probe images get."""


SingleModels = Panel | Given
Question = Pairs | EpochScores | UnitResponses | Panel | Given | ProbePictures
