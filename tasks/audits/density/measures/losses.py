"""Training and test losses of models with held-out data and of models trained on all data.

The training tables contain each model's losses by epoch, and log p of the observations at the recorded epochs. `engram
results RUN fits` prints them; the summary does not use them.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", figure 4a.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tasks.audits.density.config import Density
from tasks.audits.density.trainings import Trainings
from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, row
from tasks.numerics import statistics
from tasks.programs.config import Program
from tasks.training.density import FITTED, REFINED, is_fitted

LOSSES = pa.schema(
    [
        ("epoch", pa.int32()),  # counted from 1
        ("models", pa.string()),  # folds: with held-out data; whole: on all data
        ("split", pa.string()),  # train, test, or gap (test minus train, per training)
        ("estimate", pa.float64()),  # nats per image
        ("low", pa.float64()),  # 95 %, t over trainings
        ("high", pa.float64()),
        ("n", pa.int64()),  # number of trainings
    ]
)
SPLITS = ("train", "test", "gap")


@task(version=1, name="density.losses", gathers=True)
def losses(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute the mean losses at every epoch (LOSSES) from any number of training tables, in any order.

    A training counts once per epoch, even if several of its links contain the epoch. It does not count if its loss is
    null.
    """
    by_training: dict[tuple[str, int, str], dict[tuple[int | None, ...], float]] = {}
    for number, table in enumerate(inputs):
        if not is_fitted(table):
            raise ValueError(f"input {number} is not the table of a training")
        for fit in table.drop_columns(["log_p", "samples"]).to_pylist():
            models = "folds"
            if fit["partition"] is None and fit["row"] is None:
                models = "whole"
            training = (fit["partition"], fit["fold"], fit["row"], fit["seed"])
            of_split = {"train": fit["train_loss"], "test": fit["test_loss"]}
            if None not in of_split.values():
                of_split["gap"] = of_split["test"] - of_split["train"]
            for split, loss in of_split.items():
                if loss is not None:
                    by_training.setdefault((models, fit["epoch"], split), {})[training] = loss
    rows = []
    for models, epoch, split in sorted(by_training, key=lambda key: (key[0], key[1], SPLITS.index(key[2]))):
        of_training = by_training[models, epoch, split]
        estimate = statistics.mean([of_training[training] for training in sorted(of_training, key=str)])
        about = {"epoch": epoch, "models": models, "split": split}
        numbers = {"estimate": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}
        rows.append(about | numbers)
    return pa.Table.from_pylist(rows, LOSSES)


def plan(_: Density, trainings: Trainings | None) -> Job | tuple[()]:
    if trainings is None or isinstance(trainings.config.training, Program):  # which returns no losses
        return ()
    return Job(losses, NoSettings(), trainings.all)


def rows(tables: Tables, _: object) -> Iterator[Row]:
    """Yield the mean loss per image after the last epoch, in nats, by models and split, and the generalisation gap.

    The gap, test minus train, is not exactly 0 without memorisation, since the training loss is the mean over an epoch
    in which the model still learns.
    """
    means = tables.rows(LOSSES)
    last = max((mean["epoch"] for mean in means), default=0)
    for mean in means:
        if mean["epoch"] == last:
            estimate = Estimate(mean["estimate"], mean["low"], mean["high"], mean["n"])
            setting = {"models": mean["models"]}
            if mean["split"] == "gap":
                yield row("generalisation gap", setting, estimate, "training")
            else:
                yield row("loss", setting | {"split": mean["split"]}, estimate, "training")


def learning_curves(table: pa.Table) -> dict[str, list[tuple[int, float]]]:
    """Return the mean loss per image after each epoch, for the models with held-out data."""
    means = [mean for mean in table.sort_by("epoch").to_pylist() if mean["models"] == "folds"]
    curves = {}
    for split in ("train", "test"):
        curves[f"{split}_loss"] = [(mean["epoch"], mean["estimate"]) for mean in means if mean["split"] == split]
    return curves


def _plan_fits(_: Density, trainings: Trainings | None) -> tuple[Job, ...]:
    if trainings and not trainings.config.refinement_steps:
        return trainings.all
    return ()


def _plan_refined_fits(_: Density, trainings: Trainings | None) -> tuple[Job, ...]:
    if trainings and trainings.config.refinement_steps:
        return trainings.all
    return ()


MEASURE = Measure("losses", LOSSES, plan, rows, learning_curves)
FITS = Measure("fits", FITTED, _plan_fits), Measure("refined_fits", REFINED, _plan_refined_fits)
