"""What the feature does to the self-influence of the image that carries it.

The image with the highest self-influence and the one with the lowest are traced again with the feature, by a training
of the same seed. In the paper the feature lifts the lowest to about the size of the highest.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", section 3.3. The
paper's numbers have the size of sums of squared slopes without the learning rate, so they stand beside those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.unique_feature.canary_selection import CHOSEN, RankedImage, canary_row
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.published import PublishedCell, PublishedNumbers
from tasks.audits.unique_feature.self_influence import INFLUENCE, Tracing, influence
from tasks.audits.unique_feature.trainings import Ranking, Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.summaries import Row, alone, row

TRACED = pa.schema(
    [
        ("end", pa.string()),  # highest or lowest, among all training images without the feature
        ("with_feature", pa.bool_()),
        *INFLUENCE,
        ("share_below", pa.float64()),  # share of the training images of the same model that have less
    ]
)


@dataclass(frozen=True)
class InfluenceChange:
    """The image, by its rank."""

    canary: RankedImage


@task(version=1, name="unique_feature.traced")
def influence_change(config: InfluenceChange, inputs: Inputs) -> pa.Table:
    """The image's self-influence in the model without the feature and in the one with it (TRACED).

    The inputs are the chosen canaries, and the influences in the two models, which had the same seed.
    """
    chosen, before, after = inputs
    assert chosen.schema == CHOSEN
    canary = canary_row(config.canary, (chosen,))
    traced_twice = []
    for with_feature, table in ((False, before), (True, after)):
        values = table["self_influence"].to_numpy()
        (image,) = table.slice(row_index(table, canary), 1).to_pylist()
        below = float((values < image["self_influence"]).mean())
        traced_twice.append({"end": config.canary.end, "with_feature": with_feature, "share_below": below} | image)
    return pa.Table.from_pylist(traced_twice, TRACED)


def row_index(table: pa.Table, row: int) -> int:
    import pyarrow.compute as pc

    return int(pc.index(table["row"], row).as_py())


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    """The image at either end, traced again with the feature."""
    ranking = trainings.ranking
    if ranking is None or not config.asks_for("influence"):
        return ()
    ends = (RankedImage("highest", 1), RankedImage("lowest", 1))[: config.canaries]
    return tuple(influence_change_job(config, ranking, end) for end in ends)


def influence_change_job(config: UniqueFeature, ranking: Ranking, end: RankedImage) -> Job:
    after = Job(influence, Tracing(ranking.training, end, config.carried), (ranking.chosen,))
    return Job(influence_change, InfluenceChange(end), (ranking.chosen, ranking.influence, after))


def rows(tables: Tables, about: PublishedCell) -> Iterator[Row]:
    yield from influence_rows(tables.rows(TRACED), about.numbers)


def influence_rows(traced: Sequence[Row], published: PublishedNumbers) -> Iterator[Row]:
    """Self-influence of one image without the feature and with it, as TracInCP and without its learning rate."""
    numbers = {"highest": published.highest, "lowest": published.lowest}
    for image in traced:
        setting = {"image": image["end"], "feature": "with" if image["with_feature"] else "without"}
        printed = numbers[image["end"]]
        number = printed[int(image["with_feature"])] if printed else None
        yield row("self-influence", setting, alone(image["self_influence"]), "training")
        yield row("squared slopes", setting, alone(image["squared_slopes"]), "training", published=number)
        yield row("share of images with less self-influence", setting, alone(image["share_below"]), "training")


MEASURE = Measure("traced", TRACED, plan, rows)
