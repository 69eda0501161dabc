"""Accuracy of a linear classifier on embeddings of the encoder's training images and of other images.

The gap between the two is a common indicator of memorisation. It is reported for comparison with the deja vu score; the
paper finds that it indicates little. Meehan et al. 2023, section 4.1, "Comparison with the linear probe train-test
gap", and Figure 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.encoder_config import Given, Trained
from tasks.audits.deja_vu.presets import printed_numbers
from tasks.audits.deja_vu.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Estimate, Row, row
from tasks.numerics import seeds
from tasks.numerics.statistics import proportion
from tasks.self_supervised.linear_probe import LinearProbe, linear_probe
from tasks.self_supervised.pretraining_config import encoder_of_pretraining

# One row per model, epoch, layer and split.
PROBE = pa.schema(
    [
        ("model", pa.string()),
        ("epoch", pa.int64()),
        ("layer", pa.int64()),  # 0: the backbone
        ("split", pa.string()),  # train (the model's own images) or validation
        ("correct", pa.int64()),
        ("n", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Probed:
    """Model of each input table, and the number of epochs before the table's first epoch."""

    models: tuple[str, ...]
    before: tuple[int, ...]


@task(version=1, name="deja_vu.probe")
def probe(config: Probed, inputs: Inputs) -> pa.Table:
    """Collect the probe accuracies of each model's snapshots (PROBE)."""
    tables = []
    for model, before, accuracies in zip(config.models, config.before, inputs, strict=True):
        columns = {name: accuracies[name] for name in PROBE.names if name != "model"}
        columns["epoch"] = pc.add(accuracies["epoch"], before)
        tables.append(make_table(PROBE, model=model, **columns))
    return pa.concat_tables(tables)


def plan(config: DejaVu, trainings: Trainings) -> Job | tuple[()]:
    match config.encoders:
        case Given() | Trained(probe=False):
            return ()
    jobs = []
    for snapshots in trainings.snapshots:
        jobs.append(
            Job(
                linear_probe,
                LinearProbe(
                    images=trainings.configs[snapshots.model].images,
                    encoder=encoder_of_pretraining(trainings.configs[snapshots.model]),
                    layers=tuple(sorted({0, config.training.top, *config.layers})),
                    seed=seeds.derive(config.seed, "probe", snapshots.model),
                ),
                (snapshots.job,),
            )
        )
    about = Probed(
        tuple(snapshots.model for snapshots in trainings.snapshots),
        tuple(snapshots.before for snapshots in trainings.snapshots),
    )
    return Job(probe, about, tuple(jobs))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield accuracies pooled over both models after the last epoch, the decisive layer first."""
    table = tables.one(PROBE)
    if table is None:
        return
    last_rows = table.filter(pc.field("epoch") == about.epoch)
    for layer in dict.fromkeys([about.layer, *sorted(pc.unique(last_rows["layer"]).to_pylist())]):
        at_layer = last_rows.filter(pc.field("layer") == layer)
        for split in ("train", "validation"):
            of_split = at_layer.filter(pc.field("split") == split)
            if of_split.num_rows:
                setting: dict[str, Any] = {"epoch": about.epoch, "layer": layer, "split": split}
                yield row("probe accuracy", setting, accuracy(of_split), "image", published=paper(setting, about))


def accuracy(of_split: pa.Table) -> Estimate:
    """Estimate the pooled accuracy of both models, with Wilson's interval."""
    correct, n = count_correct(of_split)
    interval = proportion(round(correct), n)
    return Estimate(correct / n, interval.low, interval.high, n)


def count_correct(of_split: pa.Table) -> tuple[float, int]:
    """Return the number of correctly classified images in one split and its size, pooled over models.

    Each model has its own training images. Validation images are shared, so they count once, and their correct count is
    the mean over models.
    """
    models = 1
    if of_split["split"][0].as_py() == "validation":
        models = of_split.num_rows
    return pc.sum(of_split["correct"]).as_py() / models, pc.sum(of_split["n"]).as_py() // models


def paper(setting: dict[str, Any], about: About) -> float | None:
    """Return the paper's accuracy on ImageNet's validation images. None if the paper reports none."""
    if not about.cell or setting["split"] != "validation" or setting["layer"] not in (0, about.layer):
        return None
    if setting["layer"] == 0:
        return printed_numbers(about.cell).backbone
    return printed_numbers(about.cell).projector


MEASURE = Measure("probe", PROBE, plan, rows)
