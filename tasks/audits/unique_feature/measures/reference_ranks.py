"""Where the feature ranks among all of its kind, by external models' slopes less those of clean reference models.

The score `references` of `exact_ranks`, asked of models of somebody else: the centred logit of the canary's label on
images of that label, its slopes in the feature's pixels, weighted by how little ink images of the domain have there,
less the mean of the references', in units in which these vary. The images are the test images of the label in the probe
set, which has to be of the models' domain; the ink is that of its training images. The slopes of several models of one
owner are averaged in units of their standard deviation over the pixels, so that they have one p-value.

A glyph is ranked among all glyphs of its ink, words and pictures among the members of their family. The p-value is
exact where the feature was drawn from these, whatever the references are; how much they find rests on how like the
models they are in network, training and data. The score is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import check_label
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS, match_spread
from tasks.audits.unique_feature.pixel_slopes import Array, centred_logits, weighted_slopes
from tasks.audits.unique_feature.single_models import SingleModelConfig, single_model_config
from tasks.audits.unique_feature.single_predictors import predictor
from tasks.audits.unique_feature.slope_images import label_images, slope_sets
from tasks.audits.unique_feature.slope_ranks import feature_region, is_among_all, mean_standardised_slopes, rank_rows
from tasks.audits.unique_feature.trainings import Trainings
from tasks.audits.unique_feature.verdict import BESIDE, GLYPHS
from tasks.datasets.catalog import load
from tasks.datasets.images import Pixels, as_shape
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.summaries import Row, alone, row

REFERENCE_RANKS = pa.schema(
    [
        ("models", pa.int32()),  # asked as one
        ("references", pa.int32()),
        ("label", pa.int32()),
        *[EXACT_RANKS.field(name) for name in EXACT_RANKS.names[EXACT_RANKS.names.index("feature") :]],
    ]
)


@dataclass(frozen=True)
class ReferenceRanks:
    """The models of one owner, asked as one, and the references beside which they are."""

    panel: tuple[SingleModelConfig, ...]
    references: tuple[SingleModelConfig, ...]


@task(version=1, name="unique_feature.reference_ranks")
def reference_ranks(config: ReferenceRanks, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """The rank of what the models are asked about, and of glyphs that nobody is (REFERENCE_RANKS)."""
    first = config.panel[0]
    asked, label = first.relatives, first.label
    assert label is not None
    clean = label_images(asked, first.shape, label)
    sets = dict(slope_sets(asked, clean))
    here = feature_region(clean, list(sets.values()), as_shape(load(asked.probe).train_images, first.shape))
    others = [mean_response(one, sets, label) for one in config.references]
    slopes = [
        weighted_slopes(here.added, match_spread(own, others) - np.mean(others, axis=0), here.inked)
        for own in (mean_response(one, sets, label) for one in config.panel)
    ]
    about = {"models": len(slopes), "references": len(others), "label": label}
    found = rank_rows(asked, False, slopes[0] if len(slopes) == 1 else mean_standardised_slopes(slopes), here)
    return pa.Table.from_pylist([about | said for said in found], REFERENCE_RANKS)


def mean_response(one: SingleModelConfig, sets: dict[str, Pixels], label: int) -> Array:
    """The mean centred logit of the label on each of the sets; ValueError for classes that are not the probe set's."""
    predict = predictor(one, ())
    found = []
    for name, images in sets.items():
        log_p = predict(name, images)
        check_label(label, log_p.shape[1])
        classes = load(one.relatives.probe).classes
        if log_p.shape[1] != classes:
            name_of = one.model.name if one.model is not None else one.outputs.path if one.outputs is not None else ""
            raise ValueError(
                f"model {name_of} has {log_p.shape[1]} classes and probe {one.relatives.probe.name} {classes}; beside "
                "references they must be the same"
            )
        found.append(centred_logits(log_p, label).mean())
    return np.array(found)


def reference_ranks_config(config: UniqueFeature) -> ReferenceRanks | None:
    """What is asked of the models that are given beside references; None where there are none."""
    given = config.given
    if not given.references:
        return None
    panel = tuple(single_model_config(config, number) for number in range(max(len(given.models), len(given.outputs))))
    first = replace(single_model_config(config, 0), outputs=None)
    references = tuple(replace(first, number=at, model=model) for at, model in enumerate(given.references))
    return ReferenceRanks(panel, references)


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:  # noqa: ARG001
    asked = reference_ranks_config(config)
    if asked is None:
        return ()
    first = asked.panel[0]
    assert first.label is not None
    label_images(first.relatives, first.shape, first.label)  # refused now, not by a job
    return (Job(reference_ranks, asked),)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for rank in tables.rows(REFERENCE_RANKS):
        if rank["feature"] != "canary":
            continue
        models, among = rank["models"], rank["among"]
        kind = {GLYPHS: among} if is_among_all(rank) else {"others": among - 1}
        setting = {"references": rank["references"], "label": rank["label"], **kind}
        yield row(BESIDE, setting, alone(rank["p_value"] * among, models), "model", (among + 1) / 2, rank["p_value"])
        yield row("exposure in bits", {"score": "references"}, alone(rank["exposure"], models), "model")
        if rank["hits"] is not None:
            read = alone(float(rank["hits"]), models)
            yield row("pixels read out", {"score": "references"}, read, "model", rank["hits_by_chance"])


MEASURE = Measure("reference_ranks", REFERENCE_RANKS, plan, rows)
