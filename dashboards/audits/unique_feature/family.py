"""The rank of the feature within its family, for each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dashboards import drawing, legend
from dashboards.audits.unique_feature.effects import GOLDEN
from dashboards.audits.unique_feature.pairs import Array
from dashboards.chart import Axis, Chart, Figure, Layer, annotation, line, marks, row_panel
from dashboards.columns import integers, with_columns
from dashboards.layout import Rows
from tasks.audits.unique_feature import population
from tasks.numerics.ranks import rank_p_value

MOST = 20  # models drawn, one per row
LEVEL = 0.05
KINDS = {"given": "accent", "canary": "canary", "twin": "twin"}  # colours
KIND_NAMES = {"given": "given", "canary": "canary", "twin": "control"}
NEEDED = ("canary", "label", "seed", "model", "member", "log_p")


@dataclass(frozen=True)
class RankedModel:
    """One model's scores over the family, with the audited feature first: shape (members,).

    `scores` are the drawn values: deviations towards the known label, or towards the label that the feature favours.
    `standing` determines the ranks. If the label is unknown, each member counts with its highest standing.
    """

    kind: str
    canary: int | None
    label: int | None  # label of the canary, if known
    scores: Array
    standing: Array

    @property
    def rank(self) -> int:
        """The number of members that score at least as high as the audited feature, including the feature itself."""
        return round(self.p_value * len(self.standing))

    @property
    def p_value(self) -> float:
        return rank_p_value(self.standing)

    @property
    def name(self) -> str:
        return {"given": "given model", "canary": f"canary {self.canary}", "twin": f"control of {self.canary}"}[
            self.kind
        ]


def family(table: pa.Table) -> Figure | None:
    """Draw label-directed scores of the whole family, with one row per model and the audited feature marked."""
    models = list(read_models(table))
    if not models:
        return None
    title = "Does the model respond to the feature more than to any other of its kind?"
    return _family_chart(models, title).figure()


def _family_chart(models: Sequence[RankedModel], title: str) -> Chart:
    """Draw one row with the rank of each of the first models."""
    drawn_models = models[:MOST]
    step = 0.27
    if len(drawn_models) <= 3:
        step = 0.45
    y = np.arange(len(drawn_models), dtype=np.int64)[::-1]
    box = (1.12, 0.55, drawing.WIDTH - 2.2, step * len(drawn_models))
    sizes = {len(model.scores) for model in drawn_models}
    heading = "rank"
    if len(sizes) == 1:
        heading = f"rank of {sizes.pop()}"
    limits = drawing.padded_limits([float(value) for model in drawn_models for value in model.scores])
    layers = [layer for height, model in zip(y, drawn_models, strict=True) for layer in _model_layers(model, height)]
    panel = row_panel(
        Rows([model.name for model in drawn_models], y, box, box[3] + 1.0),
        [*layers, annotation(heading, (1.03, 1), (0, 3), "axes fraction", color=drawing.light("muted"))],
        Axis("standard deviations from the rest of the family", limits),
        margin=0.5,
    )
    entries = [
        legend.line("audited feature", color=drawing.light("ink"), marker="D", markersize=6, linewidth=0),
        legend.line("others of its family", color=drawing.light("muted"), marker="o", markersize=3, linewidth=0),
    ]
    return Chart("family", title, figure_caption(models), _describe_models(models), box[3] + 1.0, [panel], entries)


def _model_layers(model: RankedModel, y: float) -> Iterator[Layer]:
    """Draw one row: the scattered family, the audited feature, and its rank."""
    other_scores, (feature, *_) = model.scores[1:], model.scores
    heights = y + 0.55 * ((np.arange(len(other_scores)) * GOLDEN) % 1 - 0.5)
    colour = KINDS[model.kind]
    # Short strokes look like dots, and all strokes in a row form a single element of the page.
    strokes = drawing.segment_path(other_scores, heights - 0.03, heights + 0.03)
    yield line(*strokes, "muted", linewidth=2, solid_capstyle="butt", alpha=0.6)
    yield line([feature] * 2, [y - 0.42, y + 0.42], colour, linewidth=1.2, zorder=3)
    yield marks([feature], [y], colour, "D", 6.5, zorder=3)
    words = f"{model.rank}, p {model.p_value:.2g}"
    yield annotation(words, (1.03, y), (0, 0), ("axes fraction", "data"), va="center")


@with_columns(NEEDED, list)
def read_models(table: pa.Table) -> Iterator[RankedModel]:
    """Yield the models and the scores over the family: a given model first, then pair by pair."""
    columns = [table[name].to_pylist() for name in ("model", "canary", "seed", "label")]
    member = integers(table, "member")
    names = list(zip(*columns, strict=True))
    index = {name: index_of_model for index_of_model, name in enumerate(dict.fromkeys(names)) if name[0] in KINDS}
    which = np.array([index.get(name, -1) for name in names])
    log_p = table["log_p"].to_pylist()
    places = {pair: index_of_model for index_of_model, pair in enumerate(dict.fromkeys(name[1:] for name in names))}
    for name, index_of_model in sorted(
        index.items(), key=lambda item: (places[item[0][1:]], list(KINDS).index(item[0][0]))
    ):
        rows = np.flatnonzero((which == index_of_model) & (member >= 0))  # excludes the feature that no canary carried
        rows = rows[np.argsort(member[rows], kind="stable")]
        values = np.array([log_p[row] for row in rows], np.float64)  # (members, classes)
        if len(rows) < 3 or member[rows[0]] != 0 or not np.isfinite(values).all():
            continue
        label = name[3]
        drawn_scores = population.standardise(values)[:, population.favoured_label(values[None], label)]
        yield RankedModel(name[0], name[1], label, drawn_scores, population.label_directed_scores(values[None], label))


def figure_caption(models: Sequence[RankedModel]) -> str:
    sizes = sorted({len(model.scores) - 1 for model in models})
    if len(sizes) == 1:
        other_count = f"{sizes[0]}"
    else:
        other_count = f"{sizes[0]} to {sizes[-1]}"
    labels = {model.label is None for model in models}
    if labels == {False}:
        towards = "the label of the canary"
    elif labels == {True}:
        towards = "the label that the feature favours"
    else:
        towards = "its label, or, if that is unknown, the label that the feature favours"
    left_out = ""
    if len(models) > MOST:
        left_out = f" The first {MOST} of {len(models)} models are drawn."
    return (
        f"Each row is one model, with the feature (diamond) and {other_count} others of its family (dots at arbitrary "
        f"heights): mean log P of {towards} over the probe images, less the family's mean, in its standard deviations. "
        "A model that never saw the feature has no reason to rank it first. p is its rank divided by the family's size "
        "(if the label is unknown, by each feature's highest standing). It is exact if the feature was drawn at "
        f"random, else it compares features of the same ink. One model per row: no interval.{left_out}"
    )


def _describe_models(models: Sequence[RankedModel]) -> str:
    """Describe the rank of the feature within its family, for each kind of model."""
    words = []
    for kind in KINDS:
        of_kind = [model for model in models if model.kind == kind]
        if len(of_kind) == 1:
            (model,) = of_kind
            words.append(
                f"The {model.name}: the feature lies {drawing.format_number(float(model.scores[0]))} standard "
                f"deviations from the rest, rank {model.rank} of {len(model.scores)}, p "
                f"{drawing.format_number(model.p_value)}."
            )
        elif of_kind:
            called_count = sum(model.p_value <= LEVEL for model in of_kind)
            median = float(np.median([model.scores[0] for model in of_kind]))
            words.append(
                f"{called_count} of {len(of_kind)} {KIND_NAMES[kind]} models have p at most {LEVEL}; in their median, "
                f"the feature lies {drawing.format_number(median)} standard deviations from the rest."
            )
    return " ".join(words)
