"""Hidden units that respond only to the feature.

    share(unit) = P over probe images [active with the feature, and inactive on the clean image]

The same share is computed for a random patch, for each hidden layer of MLP-1 except the first. A unit is active if its
ReLU is above 0. A unit with a large share for the feature and a small one for random patches responds only to the
feature. A unit with two large shares responds to any patch at this position.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", A.6 and Figure 3b.
The paper names the second-last layer, but its latents 41 and 175 require a layer of more than 128 units: the tables
contain the layers of 256 and of 128 units. The paper's networks share one seed, so units correspond between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.evaluation import MODELS, Evaluation, Triples, probe_triples
from tasks.audits.unique_feature.pairs.canary_selection import canary_row
from tasks.audits.unique_feature.questions import UnitResponses
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.grouping import group_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, row
from tasks.numerics.statistics import mean

Shares = NDArray[np.float64]  # shape (units,)

MOST = 0.5  # share of the probe images; above it, a unit counts as responding to the feature and not to a random patch

LATENTS = pa.schema(
    [
        ("canary", pa.int64()),
        ("seed", pa.int64()),
        ("model", pa.string()),  # canary, or twin (its control model)
        ("layer", pa.string()),  # dense2 or dense3
        ("units", pa.int32()),  # number of units in the layer
        ("unit", pa.int32()),  # counted from 0
        ("unique", pa.float64()),  # share of probe images where it is active with the feature, but not without
        ("random", pa.float64()),  # the same for a random patch
    ]
)


@dataclass(frozen=True)
class Latents:
    """The probe images, the feature and the canary for which the units are evaluated."""

    evaluation: Evaluation


@task(version=1, name="unique_feature.latents")
def latents(config: Latents, inputs: Inputs) -> pa.Table:
    """Compute every hidden unit's shares (LATENTS) in the canary model and its control model, the first two inputs.

    Raises ValueError if the network is not MLP-1.
    """
    canary = canary_row(config.evaluation.canary, inputs)
    triples = probe_triples(config.evaluation)
    tables = [
        table
        for model, model_table in zip(MODELS, inputs[: len(MODELS)], strict=True)
        for table in model_latents(canary, model, model_table, triples)
    ]
    return pa.concat_tables(tables).combine_chunks()


def model_latents(canary: int, model: str, model_table: pa.Table, triples: Triples) -> Iterator[pa.Table]:
    """Yield one model's rows, layer by layer."""
    from tasks.models.inference import active_units
    from tasks.models.networks import HIDDEN, architecture_of, weights_of_model

    network = architecture_of(model_table)
    weights = weights_of_model(model_table)
    layers = [f"dense{number}" for number, _ in enumerate(HIDDEN, 1)][1:]
    if network.name != "mlp1":
        raise ValueError(f"network is {network.name}; latents are those of mlp1's layers {' and '.join(layers)}")
    clean = active_units(network, weights, triples.clean, layers)
    unique = active_units(network, weights, triples.unique, layers)
    random = active_units(network, weights, triples.random, layers)
    for layer in layers:
        units = clean[layer].shape[1]
        yield make_table(
            LATENTS,
            canary=canary,
            seed=model_table["seed"][0].as_py(),
            model=model,
            layer=layer,
            units=units,
            unit=range(units),
            unique=excitation_rates(unique[layer], clean[layer]),
            random=excitation_rates(random[layer], clean[layer]),
        )


def excitation_rates(changed: NDArray[np.bool_], clean: NDArray[np.bool_]) -> Shares:
    """Return the share of images in which each unit becomes active. Both masks have shape (images, units)."""
    return np.asarray((changed & ~clean).mean(axis=0))


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if not isinstance(design.question, UnitResponses):
        return ()
    return tuple(
        Job(latents, Latents(design.evaluation_of(pair.canary, pair.clean)), pair.inputs) for pair in trainings.pairs
    )


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield the number of units per model that respond to the feature, but not to a random patch.

    A unit counts if the difference of its shares exceeds MOST.
    """
    for layer, of_layer in group_rows(tables.rows(LATENTS), "layer").items():
        counts: dict[str, list[int]] = {model: [] for model in MODELS}
        for (model, _, _), units in group_rows(of_layer, "model", "canary", "seed").items():
            counts[model].append(sum(unit["unique"] - unit["random"] > MOST for unit in units))
        null = mean(counts["twin"]).value
        yield row("units of the feature", {"layer": layer}, mean(counts["canary"]), "training", null)


MEASURE = Measure("latents", LATENTS, plan, rows)
