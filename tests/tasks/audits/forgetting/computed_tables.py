"""Tables of each task, for the test that compares their fingerprints with the task's version."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pyarrow as pa

from tasks.audits.forgetting.config import About
from tasks.audits.forgetting.measures import summary
from tasks.audits.forgetting.measures.decisions import decisions
from tasks.audits.forgetting.measures.examples import Examples, examples
from tasks.audits.forgetting.measures.fits import Fit, fit
from tasks.audits.forgetting.measures.power import Power, power
from tasks.audits.forgetting.measures.query_confidences import Ask, ask
from tasks.audits.forgetting.measures.ratios import Ratios, distances, ratios
from tasks.audits.forgetting.measures.recognition import Recognition, recognition
from tasks.audits.forgetting.query_set import ProbeSet
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.job import NoSettings
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Share
from tasks.models.catalog import Network
from tasks.training.mixed import Mixture, train, unlearn
from tasks.training.unlearning_config import (
    Distillation,
    GradientAscent,
    Method,
    RandomLabels,
    TuningOnKept,
    Unlearning,
)
from tests.support.fingerprint import TRAINED, Computed
from tests.tasks.audits.forgetting import small_run
from tests.tasks.audits.forgetting.made_up import models, table, tables

TARGETS = (
    NamedTarget("D_C", "training", 0.0, 1.0, 0.0),
    NamedTarget("D_C + 0.5 D_Q", "training", 0.5, 1.0, 0.0),
    NamedTarget("said.csv", "outputs"),
)
RATIOS = Ratios(TARGETS)
DECISION_CONFIG = small_run.ABOUT
DIGITS = Part(pin(Dataset("digits")), 0, 60)


@cache
def confidences() -> list[pa.Table]:
    query, calibration, null = models(np.random.default_rng(0), 3, 3, 200)
    partly_held = np.concatenate((query[:, :100], null[:, 100:]), axis=1)
    printed = table("target", 2, 0, null[0].round(2), resolution=0.01)
    return [*tables(query, calibration, null, partly_held), printed]


@cache
def train_model(dropout: bool = False) -> pa.Table:
    shares = Share(DIGITS, 0.5, 3), Share(Part(pin(Dataset("digits-on-photos")), 60, 60))
    return train(Mixture(shares, DIGITS.data, 10, network=Network("mlp1"), dropout=dropout, epochs=5, seed=1), [])


def unlearn_by(method: Method) -> pa.Table:
    """The epochs of unlearning by a method."""
    # A student without dropout starts at its teacher and departs from it in the direction of rounding errors of a
    # gradient that is exactly 0: the fingerprint would differ by 6 % between processors.
    dropout = isinstance(method, Distillation)
    kept_share = Share(Part(pin(Dataset("digits-on-photos")), 60, 60))
    forgotten = Share(DIGITS, 0.5, 3)
    config = Unlearning((kept_share,), (forgotten,), method, DIGITS.data, 10, seed=2, batch=16)
    return epochs(unlearn(config, [train_model(dropout)]))


def epochs_of_training() -> pa.Table:
    return epochs(train_model())


def epochs(table: pa.Table) -> pa.Table:
    (result,) = table.to_pylist()
    return pa.Table.from_pylist([epoch | {"train_accuracy": result["train_accuracy"]} for epoch in result["history"]])


def confidence_table() -> pa.Table:
    return ask(Ask(ModelId("query", None, 0), ProbeSet(DIGITS)), [train_model()])


def fit_table() -> pa.Table:
    return fit(Fit(ModelId("query", None, 0)), [train_model()])


@cache
def ratio_table() -> pa.Table:
    return ratios(RATIOS, confidences())


@cache
def distance_table() -> pa.Table:
    return distances(NoSettings(), confidences())


@cache
def decision_table() -> pa.Table:
    return decisions(DECISION_CONFIG, small_run.CONTROLLED_INPUTS)


@cache
def power_table() -> pa.Table:
    return power(Power(DECISION_CONFIG), small_run.CONTROLLED_INPUTS)


@cache
def recognition_table() -> pa.Table:
    """The number of passed pairs, as a float, which `total` includes."""
    result = recognition(Recognition(DECISION_CONFIG), small_run.CONTROLLED_INPUTS)
    return result.set_column(2, "passed", result["passed"].cast(pa.float64()))


def summary_table() -> pa.Table:
    return summary(About(TARGETS, "table 1"), [decision_table(), ratio_table(), distance_table(), power_table()])


def example_table() -> pa.Table:
    """The drawn rows, as floats, which `total` includes."""
    result = examples(Examples(DIGITS, Part(pin(Dataset("digits-on-photos")), 60, 60), seed=4), [])
    return result.set_column(result.schema.get_field_index("row"), "row", result["row"].cast(pa.float64()))


TABLES = [
    Computed(decisions, decision_table),
    Computed(ratios, ratio_table),
    Computed(distances, distance_table),
    Computed(power, power_table),
    Computed(recognition, recognition_table),
    Computed(summary, summary_table),
    Computed(examples, example_table),
    Computed(train, epochs_of_training, tolerance=TRAINED),
    Computed(ask, confidence_table, tolerance=TRAINED),
    Computed(fit, fit_table, tolerance=TRAINED),
    Computed(unlearn, partial(unlearn_by, TuningOnKept(2)), label="unlearn by TuningOnKept", tolerance=TRAINED),
    Computed(
        unlearn, partial(unlearn_by, GradientAscent(3, 1e-3)), label="unlearn by GradientAscent", tolerance=TRAINED
    ),
    Computed(unlearn, partial(unlearn_by, RandomLabels(2)), label="unlearn by RandomLabels", tolerance=TRAINED),
    Computed(unlearn, partial(unlearn_by, Distillation(3, 2)), label="unlearn by Distillation", tolerance=TRAINED),
]
