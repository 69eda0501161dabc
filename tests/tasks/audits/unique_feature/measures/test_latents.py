from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.evaluation import probe_triples
from tasks.audits.unique_feature.measures.latents import (
    LATENTS,
    Latents,
    excitation_rates,
    latents,
    rows,
)
from tasks.audits.unique_feature.pairs.canary_selection import RankedImage
from tasks.contract.job import marks
from tasks.contract.measure import Tables
from tasks.contract.schemas import MODEL
from tasks.models.networks import Architecture, network_row, weight_rows
from tests.tasks.audits.unique_feature import made_up
from tests.tasks.audits.unique_feature.made_up import INK, letter_model, summary_rows, threshold_model
from tests.tasks.summary_rows import by_name, with_t

BRIGHT = 0.5001  # never equal to a mean of whole levels


def rates_of(table: pa.Table, model: str, layer: str, unit: int) -> tuple[float, float]:
    rows = [row for row in table.to_pylist() if (row["model"], row["layer"], row["unit"]) == (model, layer, unit)]
    (row,) = rows
    return row["unique"], row["random"]


def test_unit_counts_if_only_the_feature_activates_it() -> None:
    evaluation = made_up.evaluation(7)
    table = latents(Latents(evaluation), [threshold_model(BRIGHT), letter_model(1.0)])
    probe = probe_triples(evaluation)
    clean = probe.clean[:, 1:6, 1:6, 0].reshape(-1, 25)[:, INK].mean(axis=1) / 255
    random = probe.random[:, 1:6, 1:6, 0].reshape(-1, 25)[:, INK].mean(axis=1) / 255
    dark = clean < BRIGHT
    expected = dark.mean(), (dark & (random > BRIGHT)).mean()
    assert 0 < expected[1] < expected[0] < 1
    for layer in ("dense2", "dense3"):
        assert expected == rates_of(table, "canary", layer, 0)
        assert rates_of(table, "canary", layer, 1) == (0.0, 0.0)
    # The control model's unit is active on every clean image that is not black there, so the feature cannot activate
    # it.
    assert (clean == 0).mean() == rates_of(table, "twin", "dense2", 0)[0]


def test_units_have_rows_for_both_layers_and_models() -> None:
    table = latents(Latents(made_up.evaluation(7)), [letter_model(1.0)] * 2)
    assert table.schema == LATENTS
    assert len(table) == 2 * (256 + 128)
    assert {(row["model"], row["layer"], row["units"]) for row in table.to_pylist()} == {
        ("canary", "dense2", 256),
        ("canary", "dense3", 128),
        ("twin", "dense2", 256),
        ("twin", "dense3", 128),
    }
    assert [*range(256), *range(128)] * 2 == table["unit"].to_pylist()
    assert {(row["canary"], row["seed"]) for row in table.to_pylist()} == {(7, 17)}


def test_canary_by_rank_is_resolved() -> None:
    models = [letter_model(1.0)] * 2
    ranked = latents(Latents(made_up.evaluation(RankedImage("highest", 2))), [*models, made_up.chosen_rows(30, 7)])
    assert latents(Latents(made_up.evaluation(7)), models) == ranked


def test_network_without_these_layers_is_refused() -> None:
    network = Architecture("cnn1", (28, 28, 1), 10)
    row = letter_model(1.0).to_pylist()[0]
    row |= {"network": network_row(network), "weights": weight_rows(network.initial(0))}
    cnn1 = pa.Table.from_pylist([row], MODEL)
    with pytest.raises(ValueError, match=r"^network is cnn1; latents are those of mlp1's layers dense2 and dense3$"):
        latents(Latents(made_up.evaluation(7)), [cnn1, cnn1])


def test_previously_active_unit_is_not_excited() -> None:
    changed = np.array([[True, True, False], [True, True, False]])
    clean = np.array([[False, True, True], [True, True, False]])
    assert excitation_rates(changed, clean).tolist() == [0.5, 0.0, 0.0]


def test_the_task_is_marked() -> None:
    assert marks(latents).name == "unique_feature.latents"
    assert marks(latents).version == 1


def test_units_of_the_feature_ignore_random_patches() -> None:
    def units(model: str, shares: list[tuple[float, float]]) -> list[dict[str, Any]]:
        about = {"canary": 1, "seed": 2, "model": model, "layer": "dense2", "units": len(shares)}
        result = []
        for unit, (u, r) in enumerate(shares):
            result.append(about | {"unit": unit, "unique": u, "random": r})
        return result

    table = units("canary", [(0.9, 0.1), (0.9, 0.8), (0.1, 0.0), (0.7, 0.1)]) + units("twin", [(0.0, 0.0)] * 4)
    row = summary_rows([pa.Table.from_pylist(table, LATENTS)])["units of the feature", '{"layer": "dense2"}']
    assert row["estimate"] == 2.0
    assert row["null"] == 0.0
    assert row["n"] == 1


def test_unit_responds_to_most_images_beyond_random_patches() -> None:
    def units(layer: str, model: str, seed: int, shares: list[tuple[float, float]]) -> list[dict[str, Any]]:
        about = {"canary": 4, "seed": seed, "layer": layer, "model": model}
        return [about | {"unique": unique, "random": random} for unique, random in shares]

    # two units: exactly half does not count
    table = units("first", "canary", 1, [(0.75, 0.0), (0.5, 0.0), (1.0, 0.25), (1.0, 0.5)])
    table += units("first", "canary", 2, [(0.0, 1.0)]) + units("first", "twin", 1, [(0.625, 0.0)])
    table += units("second", "canary", 1, [(1.0, 0.0)])
    summary_by_name = by_name(rows(Tables([pa.Table.from_pylist(table, LATENTS)]), None))
    assert summary_by_name["units of the feature", '{"layer": "first"}'] == [
        *with_t([2, 0]),
        "training",
        1.0,
        None,
        None,
    ]
    single_training = [1.0, None, None, 1, "training", None, None, None]
    assert single_training == summary_by_name["units of the feature", '{"layer": "second"}']
