"""The rank of the feature by the weights of a model's dense first layer.

A single model is evaluated, without a control model and without references: its own weights in pixels that the domain
does not ink provide the null (`first_layer` has the score). A glyph is ranked among all glyphs of its ink, words and
pictures are ranked among the members of their family, and both are ranked among their look-alikes. The p-value is exact
if the feature was drawn. If one owner has several models, their scores are averaged in units of their standard
deviation over the pixels. This is ours; the paper has no null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.evaluation import check_label
from tasks.audits.unique_feature.given_models import FirstLayerRank, Given
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS, alone_rows, number_parts
from tasks.audits.unique_feature.questions import Panel
from tasks.audits.unique_feature.single_models.first_layer import FirstLayer, ink_counts, trained_first_layer
from tasks.audits.unique_feature.single_models.models import SingleModelConfig
from tasks.audits.unique_feature.slope_ranks import (
    FeatureRegion,
    feature_region,
    mean_standardised_slopes,
    probe_label_images,
    probe_label_rows,
    rank_alone,
    slope_sets,
)
from tasks.audits.unique_feature.slopes import Array
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row
from tasks.datasets.catalog import load
from tasks.datasets.images import Pixels
from tasks.datasets.picture_rows import reshape_images, whole_split

BY_WEIGHTS = "rank by the first layer's weights"
BY_WEIGHTS_PARTS = "rank among look-alikes by the first layer's weights"

WEIGHT_RANKS = pa.schema(
    [
        ("models", pa.int32()),  # number of models evaluated as one
        ("label", pa.int32()),
        *[EXACT_RANKS.field(name) for name in EXACT_RANKS.names[EXACT_RANKS.names.index("feature") :]],
    ]
)


@dataclass(frozen=True)
class WeightRanks:
    """The models of one owner, evaluated as one panel. Models trained by the audit are given by their MODEL tables."""

    panel: tuple[SingleModelConfig, ...]


@task(version=2, name="unique_feature.weight_ranks")
def weight_ranks(config: WeightRanks, inputs: Inputs) -> pa.Table:
    """Rank the audited feature, and glyphs that no model carries (WEIGHT_RANKS)."""
    first = config.panel[0]
    relatives = first.relatives
    label = first.label
    assert label is not None
    clean = probe_label_images(relatives, first.shape, label)
    sets = dict(slope_sets(relatives, clean))
    training = reshape_images(whole_split(load(relatives.probe).train), first.shape)
    counts = ink_counts(training)
    tables = inputs or [None] * len(config.panel)
    layers = []
    for model_config, table in zip(config.panel, tables, strict=True):
        layers.append(first_layer(model_config, table, clean, label))

    def fit_slopes(names: Sequence[str]) -> tuple[Array, FeatureRegion]:
        region = feature_region(clean, [sets[name] for name in names], training)
        slopes = [layer.pixel_scores(region.indices, counts) for layer in layers]
        return slopes[0] if len(slopes) == 1 else mean_standardised_slopes(slopes), region

    about = {"models": len(config.panel), "label": label}
    ranks = rank_alone(relatives, clean, list(sets), fit_slopes)
    return pa.Table.from_pylist([about | rank for rank in ranks], WEIGHT_RANKS)


def first_layer(config: SingleModelConfig, table: pa.Table | None, images: Pixels, label: int) -> FirstLayer:
    """Return the model's first layer, with its response to images of the label."""
    if table is not None:
        check_label(label, load(config.relatives.probe).classes)
        from tasks.models.networks import architecture_of, weights_of_model

        return trained_first_layer(architecture_of(table), weights_of_model(table), images, label)
    from tasks.external.first_layers import label_gradients
    from tasks.external.loading import load_model

    assert config.model is not None
    return FirstLayer(
        *label_gradients(load_model(config.model, config.shape, config.interface, config.classes), images, label)
    )


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    question = design.question
    if not isinstance(question, Panel | Given) or not isinstance(question.judged_by, FirstLayerRank):
        return ()
    panel = tuple(single.config for single in trainings.single_models)
    first = panel[0]
    assert first.label is not None
    probe_label_rows(first.relatives, first.label)  # fails now, not in a job
    inputs = tuple(job for single in trainings.single_models for job in single.inputs)
    return (Job(weight_ranks, WeightRanks(panel), inputs),)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for rank in number_parts(tables.rows(WEIGHT_RANKS)):
        yield from alone_rows(rank, (BY_WEIGHTS, BY_WEIGHTS_PARTS), {}, "first layer")


MEASURE = Measure("weight_ranks", WEIGHT_RANKS, plan, rows)
