"""Is a feature that occurs in one single training image memorised?

A canary is one training image with the feature burnt in (the letter A, 5 x 5 pixels, 1 pixel from the top and left
edges). For each canary one network is trained with it, and a twin with the same seed and the clean image instead.
Both are asked about images that are clean (x_c), carry the feature (x_u), or carry a random patch z_r at its place,
drawn afresh for every image (x_r).

    black box   M   = mean KL(f(x_c) || f(x_u)) - mean KL(f(x_c) || f(x_r))      over the probe images
    white box   M_w = mean log P(y | x_u) - log P(y | x_r)                       y: the canary's label
    effect      M (or M_w) of the canary's model minus that of its twin          over pairs of trainings

Reading it. The paper calls a feature memorised where M > 0 with a small p in a one-tailed t-test over probe images.
That is given as published, and does not measure memory: the letter is brighter than a random patch, and M follows the
training seed, so models that never saw the feature can be called memorised too; their rate stands beside as the null.
What the canary did is the effect: above 0 the model answers to the feature because it was trained on it. Its interval
and p-value are over pairs of trainings. An interval that includes 0 says "not seen", not "safe".

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks": M is eq. 1 with
section 2.3.2, M_w section 2.2, the canaries section 2.4, the training sections A.2 and A.3, Table 1 and section B.1.
The twins, the effects and the adjusted p-values are ours; the paper has no null.

Cost. Two trainings per canary. `quickstart` takes about 40 s of one core; `table1-mnist` is 200 trainings of MLP-1 on
MNIST, about 42 minutes on two cores.

Decisions where the paper is silent. The feature overwrites its block in every channel, glyph 1 on a background of 0.
z_r is U[0, 1] per pixel and channel, quantised to the image's 256 levels, and one evaluation seed serves all models.
M_w is given over the training images of y without the canary (section 2.2) and over the probe set (section B.1), since
the paper says both. The validation split, by which training stops, is the test split. The t-test is given as
Welch's and as a paired one. Each canary has a training seed of its own (the paper does not say): with one seed for all,
every twin would be the same network and every effect would be measured against that one, so pairs would not be
independent and an interval over them would say nothing of another seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

import pyarrow as pa

from tasks import seeds
from tasks.audits.unique_feature.canaries import CanaryScores, canary_scores
from tasks.audits.unique_feature.evaluation import Evaluation, Pair, ProbeSplit, history, score
from tasks.audits.unique_feature.summary import Published, Summary, summary
from tasks.audits.unique_feature.verdict import verdict
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature, Glyph, check_fits
from tasks.job import Audit, Job, Roots, Verdict
from tasks.models import catalog
from tasks.models.catalog import Network
from tasks.models.regularisers import Regularisers
from tasks.training.classifier import Burnt, Training, train


@dataclass(frozen=True)
class UniqueFeature:
    """Which canaries, in which data, for which network, and how it is asked about them.

    The defaults are the published setting: `network` trained for up to `epochs`, stopped after `patience` epochs
    without a lower validation loss, Adam at `learning_rate`, `batch` images a step. `tasks.models.catalog` lists the
    networks; one's own is written package.module:factory. `dropout`, `batch_norm` and `augmentation` are those of the
    paper's Table 3. Training uses the first `examples` training images (0: all). The models are asked about `feature`;
    the canaries carry `burnt`, which is that feature unless another is given. `seed` is the only source of chance.
    """

    data: Dataset = Dataset("mnist")
    probe: Dataset = Dataset("cifar10")
    probe_split: ProbeSplit = "test"
    network: Network = Network("mlp1")
    dropout: bool = False
    batch_norm: bool = False
    augmentation: bool = False
    feature: Feature = Glyph()
    burnt: Feature | None = None
    canaries: int = 100
    examples: int = 0
    epochs: int = 500
    patience: int = 10
    learning_rate: float = 3e-4
    batch: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be a number above 0")
        if self.probe_split not in get_args(ProbeSplit):
            allowed = ", ".join(get_args(ProbeSplit))
            raise ValueError(f"probe_split is {self.probe_split!r}; it must be one of {allowed}")
        catalog.check(str(self.network), Regularisers(self.dropout, self.batch_norm))

    @property
    def carried(self) -> Feature:
        """The feature that the canaries carry."""
        return self.feature if self.burnt is None else self.burnt


LEAST = {"canaries": 1, "examples": 0, "epochs": 1, "patience": 1, "batch": 1, "seed": 0}


def plan(config: UniqueFeature) -> Roots:
    """The tables of the audit: `summary`, `canary_scores`, `divergences` and `history`."""
    divergences, histories = [], []
    for index, canary in enumerate(drawn_canaries(config)):
        carrying = (Burnt(canary, config.carried),)
        models = (Job(train, training(config, index, carrying)), Job(train, training(config, index, ())))
        divergences.append(Job(score, evaluation(config, canary), models))
        histories.append(Job(history, Pair(canary), models))
    scores = Job(canary_scores, CanaryScores(), (*divergences, *histories))
    return {
        "summary": Job(summary, Summary(repeats(config)), (scores,)),
        "canary_scores": scores,
        "divergences": tuple(divergences),
        "history": tuple(histories),
    }


def drawn_canaries(config: UniqueFeature) -> list[int]:
    """Rows of the training images, drawn without replacement; fewer canaries are the first of more."""
    images = load(config.data).train_images
    rows = config.examples or len(images)
    for name, most in (("examples", len(images)), ("canaries", rows)):
        if getattr(config, name) > most:
            raise ValueError(
                f"{name} is {getattr(config, name)}; it must be at most {most}, the training images there are"
            )
    for feature in (config.feature, config.carried):
        check_fits(feature, *images.shape[1:3])
    return [int(row) for row in seeds.generator(config.seed, "canaries").permutation(rows)[: config.canaries]]


def training(config: UniqueFeature, index: int, burnt: tuple[Burnt, ...]) -> Training:
    """The training of the canary with this index, or of its twin (nothing burnt): one seed for the two of them."""
    return Training(
        data=config.data,
        network=config.network,
        dropout=config.dropout,
        batch_norm=config.batch_norm,
        augmentation=config.augmentation,
        burnt=burnt,
        examples=config.examples,
        epochs=config.epochs,
        patience=config.patience,
        learning_rate=config.learning_rate,
        batch=config.batch,
        seed=seeds.derive(config.seed, "training", index),
    )


def evaluation(config: UniqueFeature, canary: int) -> Evaluation:
    return Evaluation(
        data=config.data,
        probe=config.probe,
        probe_split=config.probe_split,
        feature=config.feature,
        canary=canary,
        examples=config.examples,
        seed=seeds.derive(config.seed, "evaluation"),
    )


def repeats(config: UniqueFeature) -> Published:
    """The published table that a config repeats, whatever its seed."""
    here = replace(config, data=Dataset(config.data.name), probe=Dataset(config.probe.name), seed=0)
    return "table 1, MNIST" if here == PRESETS["table1-mnist"] else ""


def tiny(config: UniqueFeature) -> UniqueFeature:
    """The same audit on embedded data, in seconds."""
    return replace(
        config,
        data=Dataset("digits"),
        probe=Dataset("photos"),
        canaries=min(config.canaries, 3),
        examples=300,
        epochs=min(config.epochs, 2),
    )


QUICKSTART = UniqueFeature(data=Dataset("digits"), probe=Dataset("photos"), canaries=12)

PRESETS: Mapping[str, UniqueFeature] = {
    "quickstart": QUICKSTART,
    "null": replace(QUICKSTART, burnt=Glyph(kind="random", seed=1)),
    "smoke": replace(QUICKSTART, canaries=3, examples=300, epochs=3),
    "table1-mnist": UniqueFeature(),
}


def answer(config: UniqueFeature, table: pa.Table) -> Verdict:
    """The answer in words, from the summary table."""
    return verdict(config.feature, config.carried, table)


AUDIT = Audit(config=UniqueFeature, plan=plan, presets=PRESETS, tiny=tiny, verdict=answer)
