"""Whether what a model's neighbours of a background draw shows the object that was before it.

score = share of drawings by the target model that show the true object - share of those by the reference model

picture by picture, both models' drawings of the same one, over the pictures of both sets. 0 where nothing is memorised.
What a drawing shows is said by the classifier of `tasks.audits.deja_vu.measures.drawn`, which is wrong of drawings by
either model alike; how often it is right of the pictures themselves is told beside, which bounds what can be seen.

The interval is Newcombe's for paired shares; p is McNemar's exact one, one-tailed. Where one model draws better than
the other whatever it was trained on, it is the target for one set and the reference for the other, so that this alone
makes no score. All of this is ours: the paper shows drawings and does not count. Meehan et al. 2023, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.measures import drawn
from tasks.audits.deja_vu.measures.inferences import OTHER, SETS
from tasks.audits.deja_vu.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.statistics import Estimate, mcnemar_greater, paired_difference, proportion
from tasks.summaries import Row, row

BOTH = "both"
NAMES = ("target", "reference", "score", "picture")
ENDS = ("", "_low", "_high")

# One row for each way.
RECONSTRUCTION = pa.schema(
    [
        ("way", pa.string()),  # the set whose pictures are drawn; both: all pictures together
        # The shares of drawings that show the true object, by model, their difference, and the share of pictures
        # themselves that the classifier names rightly.
        *((f"{name}{end}", pa.float64()) for name in NAMES for end in ENDS),
        ("p_value", pa.float64()),  # that the target's show it more often
        ("pictures", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Nothing:
    """The shares need no setting."""


@dataclass(frozen=True, eq=False)
class Shown:
    """Whether the true object is shown: by the target's drawing, the reference's, and the picture; (n,) each."""

    target: NDArray[np.bool_]
    reference: NDArray[np.bool_]
    picture: NDArray[np.bool_]


@task(version=1, name="deja_vu.reconstruction", gathers=True)
def reconstruction(config: Nothing, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """How often drawings show the true object (RECONSTRUCTION), from both models' drawings (DRAWN)."""
    found = pa.concat_tables(inputs) if inputs else drawn.DRAWN.empty_table()
    ways = {name: shown_pictures(found, name) for name in SETS}
    both = Shown(*(np.concatenate([getattr(way, name) for way in ways.values()]) for name in NAMES if name != "score"))
    rows = [{"way": name, **score_pictures(way)} for name, way in {BOTH: both, **ways}.items() if len(way.target)]
    return pa.Table.from_pylist(rows, RECONSTRUCTION)


def shown_pictures(found: pa.Table, name: str) -> Shown:
    """What is shown of the pictures of one set that both models drew, by id."""
    of_set = found.filter(pc.field("set") == name)
    target, reference = (of_set.filter(pc.field("model") == model).sort_by("id") for model in (name, OTHER[name]))
    target = target.filter(pc.is_in(target["id"], reference["id"]))
    reference = reference.filter(pc.is_in(reference["id"], target["id"]))
    return Shown(right(target, "drawn_label"), right(reference, "drawn_label"), right(target, "picture_label"))


def right(rows: pa.Table, name: str) -> NDArray[np.bool_]:
    return np.asarray(rows[name].to_numpy() == rows["label"].to_numpy(), np.bool_)


def score_pictures(way: Shown) -> dict[str, Any]:
    """The shares, their difference and its p, of one picture or more."""
    n, target, reference = len(way.target), way.target.tolist(), way.reference.tolist()
    estimates = {
        "target": proportion(sum(target), n),
        "reference": proportion(sum(reference), n),
        "score": paired_difference(target, reference),
        "picture": proportion(int(way.picture.sum()), n),
    }
    columns: dict[str, Any] = {"pictures": n, "p_value": mcnemar_greater(target, reference)}
    for name, each in estimates.items():
        columns |= dict(zip((f"{name}{end}" for end in ENDS), (each.value, each.low, each.high), strict=True))
    return columns


def plan(config: DejaVu, trainings: Trainings) -> Job | tuple[()]:
    jobs = drawn.plan(config, trainings)
    return Job(reconstruction, Nothing(), tuple(jobs)) if jobs else ()


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """The score of both ways, and the shares that it is made of."""
    table = tables.one(RECONSTRUCTION)
    for each in [] if table is None else table.to_pylist():
        if each["way"] != BOTH:
            continue
        setting = {"epoch": about.epoch, "layer": about.layer}
        yield row("reconstruction score", setting, estimate(each, "score"), "picture", 0.0, each["p_value"])
        for model in ("target", "reference"):
            yield row("drawn rightly", {**setting, "model": model}, estimate(each, model), "picture")
        yield row("picture named rightly", {}, estimate(each, "picture"), "picture")


def estimate(each: Row, name: str) -> Estimate:
    return Estimate(each[name], each[f"{name}_low"], each[f"{name}_high"], each["pictures"])


MEASURE = Measure("reconstruction", RECONSTRUCTION, plan, rows)
