"""The part of the configuration that the measures of a run read, derived once from the loaded data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from tasks.audits.unique_feature.config import ProbeSplit, RandomKind, Shape, UniqueFeature
from tasks.audits.unique_feature.evaluation import Burning, Evaluation, evaluation_seed
from tasks.audits.unique_feature.given_models import Given
from tasks.audits.unique_feature.pairs.canary_selection import Canary, own_feature
from tasks.audits.unique_feature.population import Relatives, relatives
from tasks.audits.unique_feature.questions import MeasureName, Pairs, Panel, Question
from tasks.audits.unique_feature.unseen_images import TrainingImages, seen_images
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, family
from tasks.numerics import seeds
from tasks.programs.config import StatedPrivacy
from tasks.training.recipe import Privacy


class TrainingData(Protocol):
    """The first `examples` training images of a data set (0: all)."""

    @property
    def data(self) -> Dataset: ...

    @property
    def examples(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Design:
    """The images and the features of a run.

    `asked_feature` is the feature that models are evaluated on. `carried_feature` is the one that canaries carry,
    unless every canary has its own feature. `ranked` is the feature with its family, or None for questions that rank no
    feature. `seen_images` are the training images, whose copies are left out.
    """

    question: Question
    probe: Dataset
    probe_split: ProbeSplit
    random: RandomKind
    seed: int
    shape: Shape
    asked_feature: Feature
    carried_feature: Feature
    family: Family
    ranked: Relatives | None
    seen_images: TrainingImages | None
    privacy: Privacy | StatedPrivacy | None
    draws_features: bool
    measures: tuple[MeasureName, ...]
    decides_by_ranks: bool

    def asks_for(self, *measures: MeasureName) -> bool:
        """Return whether any of these measures is requested for pairs."""
        return any(measure in self.measures for measure in measures)

    @property
    def has_family(self) -> bool:
        """Whether the feature can be ranked among enough distinguishable others. An image of one colour has none."""
        try:
            family(self.asked_feature, self.family, self.seed, self.shape[:2])
        except ValueError:
            return False
        return True

    @property
    def judges_by_family(self) -> bool:
        """Whether every canary of a pair is judged by the rank of its feature in its family."""
        if not self.asks_for("scores", "family") or self.decides_by_ranks:
            return False
        return self.asks_for("family") or self.has_family

    @property
    def evaluates_family(self) -> bool:
        """Whether pairs are evaluated on the family of their feature, to be judged by it, or to describe its effect."""
        is_stopped = isinstance(self.question, Pairs) and bool(self.question.stopping_level)
        return self.asks_for("family") or self.judges_by_family or is_stopped

    @property
    def burning(self) -> Burning:
        """The features burnt into probe images if all canaries share them."""
        return Burning(self.asked_feature, self.random, evaluation_seed(self.seed))

    def evaluation_of(self, canary: Canary, clean: TrainingData, redraw: int = 0) -> Evaluation:
        """Return the evaluation of the canary's models with draw number `redraw` of the random patches, counted from 0.

        `clean` names their training images without the canary.
        """
        return Evaluation(
            data=clean.data,
            probe=self.probe,
            probe_split=self.probe_split,
            feature=canary.audited_feature,
            canary=canary.image,
            examples=clean.examples,
            seed=evaluation_seed(self.seed, redraw),
            redraw=redraw,
            random=self.random,
            seen=self.seen_images,
        )

    def relatives_of(self, canary: Canary) -> Relatives:
        """Return the feature that a canary's models are evaluated on, with its family."""
        assert self.ranked is not None  # other questions rank no feature
        if self.draws_features:
            seed = seeds.derive(self.seed, "family", canary.number)
        else:
            seed = self.ranked.seed
        return replace(self.ranked, feature=canary.audited_feature, seed=seed)


def uncarried_feature(design: Design, canary: Canary, shape: Shape) -> Feature | None:
    """Return a feature that is neither carried nor audited, or None if it looks like one of these."""
    candidate = design.asked_feature
    if not design.draws_features:
        candidate = own_feature(candidate, design.family, design.seed, canary.number, shape)
    patterns = set()
    for feature in (canary.carried_feature, canary.audited_feature):
        patterns.add(feature.patch().pixels())
    return None if candidate.patch().pixels() in patterns else candidate


def load_design(config: UniqueFeature) -> Design:
    """Return the design of a configuration. Raises DatasetError if all probe images are copies of training images."""
    excluded_images = seen_images(config)
    asked_feature = config.asked_feature
    is_ranked = isinstance(config.question, Pairs | Panel | Given)
    pairs = config.scored_pairs
    return Design(
        question=config.question,
        probe=config.probe,
        probe_split=config.probe_split,
        random=config.random,
        seed=config.seed,
        shape=config.shape,
        asked_feature=asked_feature,
        carried_feature=config.carried,
        family=config.family,
        ranked=relatives(config, asked_feature, seen_images=excluded_images) if is_ranked else None,
        seen_images=excluded_images,
        privacy=config.privacy,
        draws_features=config.draws_features,
        measures=() if pairs is None else pairs.measures,
        decides_by_ranks=config.decides_by_ranks,
    )
