"""Configuration: the question, the feature, the images on which models are evaluated, and the seed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

from tasks.audits.unique_feature.given_models import FirstLayerRank, Given, ReturnedOutputs
from tasks.audits.unique_feature.questions import CanaryPairs, MeasureName, Pairs, Panel, Question, TrainedHere
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, Glyph
from tasks.external.bound_draw import Draw, derive_secret_seed, describe_draw
from tasks.programs.config import StatedPrivacy
from tasks.training.recipe import Privacy
from tasks.worker.files import File

Shape = tuple[int, int, int]  # height, width, channels
ProbeSplit = Literal["test", "both"]
RandomKind = Literal["noise", "family"]


@dataclass(frozen=True)
class UniqueFeature(Ranged):
    """The question about a feature, and the images on which models are evaluated.

    The defaults are the published setting. Training that is traced or evaluated epoch by epoch is always one job,
    regardless of `link`. If `ranks` is measured, the feature is ranked by the slopes of its pixels among all features
    of its kind, and for a glyph this rank decides which canaries are found.
    """

    question: Question = Pairs()
    """Question: pairs (of networks trained by the audit), course, latents, panel, given or pictures."""
    probe: Dataset = Dataset("cifar10")
    """Images on which models are evaluated, in addition to training images of the canary's class."""
    probe_split: ProbeSplit = "test"
    """Split of `probe` on which models are evaluated."""
    feature: Feature = Glyph()
    """Audited feature: a letter, words or a picture at a fixed position."""
    random: RandomKind = "noise"
    """Random patch z_r that the feature is compared with: noise, or another member of the family (footnote 1)."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: seed of all random numbers."""

    # The questions

    @property
    def pairs(self) -> CanaryPairs | None:
        """The question if it trains pairs of networks, else None."""
        if isinstance(self.question, CanaryPairs):
            return self.question
        return None

    @property
    def scored_pairs(self) -> Pairs | None:
        """The question if it is answered by the scores and ranks of pairs, else None."""
        return self.question if isinstance(self.question, Pairs) else None

    @property
    def single_models(self) -> Panel | Given | None:
        """The question if it evaluates single models, else None."""
        if isinstance(self.question, Panel | Given):
            return self.question
        return None

    @property
    def given(self) -> Given | None:
        """The question if it evaluates third-party models, else None."""
        return self.question if isinstance(self.question, Given) else None

    @property
    def trained(self) -> TrainedHere | None:
        """The question if it trains networks, else None."""
        if isinstance(self.question, TrainedHere):
            return self.question
        return None

    @property
    def privacy(self) -> Privacy | StatedPrivacy | None:
        """The privacy guarantee of the training, or None if there is none."""
        match self.question:
            case CanaryPairs() | Panel():
                return self.question.training.guarantee
            case _:
                return None

    def asks_for(self, *measures: MeasureName) -> bool:
        """Return whether any of these measures is requested for pairs."""
        pairs = self.scored_pairs
        return pairs is not None and any(measure in pairs.measures for measure in measures)

    @property
    def shape(self) -> Shape:
        """Shape of the images on which models are evaluated. It follows from the training images, if there are any."""
        if isinstance(self.question, Given):
            return self.question.shape
        return load(self.question.data).shape

    # The feature and its family

    @property
    def asked_feature(self) -> Feature:
        """The audited feature. The secret and the nonce determine a random glyph whose seed is 0."""
        feature = self.feature
        if self.has_bound_glyph and isinstance(feature, Glyph) and not feature.seed:
            return replace(feature, seed=self.derive_seed("glyph"))
        return feature

    @property
    def carried(self) -> Feature:
        """The feature that the canaries carry."""
        burnt = None if self.pairs is None else self.pairs.burnt
        return self.asked_feature if burnt is None else burnt

    @property
    def family(self) -> Family:
        """The family in which features are ranked. The default family for questions without ranks."""
        if isinstance(self.question, Pairs | Panel | Given):
            return self.question.family
        return Family()

    @property
    def is_null(self) -> bool:
        """Whether the canaries carry a feature other than the audited one."""
        return self.carried != self.asked_feature

    @property
    def draws_features(self) -> bool:
        """Whether every canary has its own feature."""
        return self.scored_pairs is not None and self.scored_pairs.drawn

    @property
    def decides_by_ranks(self) -> bool:
        """Whether exact ranks decide which canaries are found: they are measured, and all glyphs can be counted."""
        return self.asks_for("ranks") and are_all_counted(self.asked_feature, self.family)

    # Random numbers

    def stream(self, *path: str | int) -> tuple[str | int, ...]:
        """Return the path of a random number stream.

        Canaries with drawn features have different images and seeds, so that runs with one feature and runs with drawn
        features are independent samples.
        """
        return ("drawn", *path) if self.draws_features else path

    def training_stream(self, number: int, replicate: int) -> tuple[str | int, ...]:
        """Return the stream for the training seed of a canary and replicate. Replicates are counted from 0."""
        one_seed = self.pairs is not None and self.pairs.one_seed
        return self.stream("training", 0 if one_seed else number, *((replicate,) if replicate else ()))

    @property
    def picture_order(self) -> int:
        """Seed of the order in which an owner receives the images. 0 if no owner receives any."""
        if self.given is not None and self.given.hands_out:
            return self.derive_seed("order")
        return 0

    def derive_seed(self, name: str) -> int:
        """Derive the seed of a draw between two parties."""
        if self.given is None:
            return derive_secret_seed(self.seed, name, "")
        return derive_secret_seed(self.seed, name, self.given.secret, self.given.nonce)

    # The draw between two parties

    @property
    def has_bound_glyph(self) -> bool:
        """Whether the secret and the nonce determine the feature, which is then a random glyph. No other one is
        accepted.
        """
        glyph = self.feature
        is_random = isinstance(glyph, Glyph) and glyph.kind == "random"
        return is_random and self.given is not None and bool(self.given.nonce)

    @property
    def draw(self) -> Draw:
        """What determines the draw of the family, of the image order and of a random glyph."""
        question = self.given
        if question is None:
            return Draw(None, self, self.seed, "")
        unused = ("feature.seed",) if self._has_drawn_glyph else ()
        return Draw(
            self._drawn_from, self._committed, self.seed, question.secret, question.nonce, question.commitment, unused
        )

    @property
    def _committed(self) -> UniqueFeature:
        """The configuration that a commitment covers. It leaves open whether model files or outputs follow."""
        question = self.given
        if question is None or isinstance(question.judged_by, FirstLayerRank):
            return self
        if isinstance(question.source, ReturnedOutputs):
            return self
        return replace(self, question=replace(question, source=ReturnedOutputs(judged_by=question.judged_by)))

    @property
    def _has_drawn_glyph(self) -> bool:
        """Whether the draw determines the random glyph, either now or once a nonce is named."""
        glyph = self.feature
        return isinstance(glyph, Glyph) and glyph.kind == "random" and glyph.seed in (0, self._drawn_glyph_seed)

    @property
    def _drawn_glyph_seed(self) -> int:
        """Seed of the glyph that the secret and the nonce determine. 0 before a nonce is named."""
        if self.given is not None and self.given.nonce:
            return self.derive_seed("glyph")
        return 0

    def _drawn_from(self) -> tuple[object, ...]:
        """Return the content of commitments made by earlier versions, in which the draw determines the random glyph."""
        assert self.given is not None
        feature = self.feature
        if isinstance(feature, Glyph) and (not self.given.nonce or feature.seed == self._drawn_glyph_seed):
            feature = replace(feature, seed=0)
        probe = (self.probe.identity(), self.probe_split, self.given.probes)
        family = repr(self.given.family).replace(type(self.given.family).__name__, Family.__name__, 1)
        return (*probe, self.random, *_feature_content(feature), family)

    def describe_draw(self) -> str:
        """Describe who chose the draw of the family and of a random glyph."""
        assert self.given is not None
        subject = "The choice of the features that this feature is compared with"
        if self.has_bound_glyph:
            subject = "The choice of the feature and of those that it is compared with"
        return describe_draw(subject, self.given.commitment, self.given.nonce, self.given.nonce_by)


def are_all_counted(feature: Feature, family: Family) -> bool:
    """Return whether a feature is ranked among all of its kind, which requires that they can be counted.

    Otherwise, it is ranked among the members of its family.
    """
    return isinstance(feature, Glyph) and family.kind == "alike"


def _feature_content(feature: Feature) -> list[object]:
    """Return the kind and fields of the feature, as a commitment names them. Files are named by their digests."""
    values = (getattr(feature, field.name) for field in fields(feature))
    return [type(feature).__name__, *(value.identity() if isinstance(value, File) else value for value in values)]
