"""What a canary's model and its twin say of the feature and of its family: one row per model and member.

The family is the null that a single model has: features of the same kind, ink and place that it was not trained on.
`detection`, `panels` and `canary_verdicts` rank the feature among it. Each pair is asked about one more feature, which
its canary did not carry: where canaries carry features drawn from a family, the feature whose family it is, and where
they carry that, a drawn one. Ranked as the carried one is, it shows how often a rank calls what no model has seen. Of a
drawn one that is 5 % whatever models do, since the draw guarantees it: a check of the code, not of how like a chosen
feature is to its family. Let the canaries carry drawn ones (`drawn`) to count that.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.unique_feature.canary_selection import Canary, RankedImage, canary_row, own_feature
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import MODELS, network_predictor
from tasks.audits.unique_feature.feature_family import FAMILY, Relatives, clean_images, family_rows, relatives
from tasks.audits.unique_feature.probe_images import ProbeSplit
from tasks.audits.unique_feature.trainings import Trainings
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature
from tasks.job import Inputs, Job, task
from tasks.measure import Measure
from tasks.work import Work, format_shape


@dataclass(frozen=True)
class PairFamily:
    """The canary, by its row or rank in the training images of `data`, whose model and twin are asked.

    `uncarried` is a feature that the canary did not carry, None where the family has no second one.
    """

    data: Dataset
    canary: int | RankedImage
    relatives: Relatives
    uncarried: Feature | None = None


def batch_key(config: PairFamily) -> tuple[Dataset, Dataset, ProbeSplit, int, int]:
    """What scores must share to take about as long as one another."""
    asked = config.relatives
    return config.data, asked.probe, asked.probe_split, asked.probes, asked.family.count


def work(config: PairFamily) -> Work:
    """What the two networks are asked: the probe images, each with every member of the family and without."""
    asked = config.relatives
    images = load(asked.probe)
    probes = asked.probes or len(images.test_images)
    return Work(
        besides={f"ask a pair about {format_shape(load(config.data).shape)}": probes * (asked.family.count + 2)}
    )


@task(version=3, name="unique_feature.family", batch_key=batch_key, work=work)
def pair_family(config: PairFamily, inputs: Inputs) -> pa.Table:
    """The family's scores (FAMILY) of the canary's model and of its twin (the first two inputs)."""
    data = load(config.data)
    canary = canary_row(config.canary, inputs)
    about = {"canary": canary, "label": int(data.train_labels[canary])}
    clean = clean_images(config.relatives, data.shape)
    pair = list(zip(MODELS, inputs, strict=False))
    answered = family_rows(config.relatives, clean, [network_predictor(table) for _, table in pair], config.uncarried)
    rows = [
        about | {"seed": table["seed"][0].as_py(), "model": model} | row
        for (model, table), members in zip(pair, answered, strict=True)
        for row in members
    ]
    return pa.Table.from_pylist(rows, FAMILY)


def uncarried_feature(config: UniqueFeature, canary: Canary) -> Feature | None:
    """A feature that the canary did not carry and is not asked about; None where that has the looks of one of these."""
    other = config.feature if config.drawn else own_feature(config, canary.number)
    looks = {feature.patch().pixels() for feature in (canary.carried, canary.asked)}
    return None if other.patch().pixels() in looks else other


def family_jobs(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    """Every pair's family."""
    return tuple(
        Job(
            pair_family,
            PairFamily(
                config.trained_on,
                pair.canary.image,
                relatives(config, pair.canary.asked, pair.canary.number),
                uncarried_feature(config, pair.canary),
            ),
            pair.inputs,
        )
        for pair in trainings.pairs
    )


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    return family_jobs(config, trainings) if config.asks_for("family") else ()


MEASURE = Measure("family", FAMILY, plan)
