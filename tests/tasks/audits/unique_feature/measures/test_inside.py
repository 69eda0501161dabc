"""What happens while a model is trained, and which of its units answer to the feature, pair by pair."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.audits.unique_feature.measures.latents import latent
from tasks.audits.unique_feature.measures.learning_curve import during_training
from tests.tasks.summary_rows import by_name, with_t


def trained(canary: int, model: str, m: list[float], kept: int) -> list[dict[str, Any]]:
    about = {"canary": canary, "seed": 1, "model": model}
    return [
        about | {"epoch": epoch, "m": value, "m_w_probe": value * 10, "kept": epoch == kept}
        for epoch, value in enumerate(m)
    ]


def test_each_model_has_its_own_kept_epoch_and_stands_beside_its_twin() -> None:
    course = trained(1, "canary", [0.1, 0.2, 0.3], kept=2) + trained(2, "twin", [0.0, 0.05, 0.4], kept=2)
    course += trained(1, "twin", [0.01, 0.02, 0.03], kept=0) + trained(2, "canary", [0.2, 0.5, 0.6], kept=1)
    course += trained(3, "canary", [9.0, 9.0], kept=1)  # its twin is missing
    found = by_name(during_training(course))
    for moment, canary, twin in (
        ("before training", [0.1, 0.2], [0.01, 0.0]),
        ("first epoch", [0.2, 0.5], [0.02, 0.05]),
        ("kept", [0.3, 0.5], [0.01, 0.4]),
    ):
        setting = f'{{"epoch": "{moment}"}}'
        for metric, size in (("M", 1), ("M_w", 10)):
            ours, theirs = [size * m for m in canary], [size * m for m in twin]
            expected = [*with_t(ours), "training", sum(theirs) / 2, None, None]
            assert expected == pytest.approx(found[metric, setting])
            effects = with_t([a - b for a, b in zip(ours, theirs, strict=True)])
            assert [*effects, "pair of trainings", 0.0, None, None] == pytest.approx(found[f"{metric} effect", setting])
    assert 12 == len(found)


def test_a_unit_answers_where_the_feature_moves_it_in_more_than_half_of_the_images_beyond_a_random_patch() -> None:
    def units(layer: str, model: str, seed: int, shares: list[tuple[float, float]]) -> list[dict[str, Any]]:
        about = {"canary": 4, "seed": seed, "layer": layer, "model": model}
        return [about | {"unique": unique, "random": random} for unique, random in shares]

    rows = units("first", "canary", 1, [(0.75, 0.0), (0.5, 0.0), (1.0, 0.25), (1.0, 0.5)])  # 2: half is not more
    rows += units("first", "canary", 2, [(0.0, 1.0)]) + units("first", "twin", 1, [(0.625, 0.0)])
    rows += units("second", "canary", 1, [(1.0, 0.0)])
    found = by_name(latent(rows))
    assert [*with_t([2, 0]), "training", 1.0, None, None] == found["units of the feature", '{"layer": "first"}']
    alone = [1.0, None, None, 1, "training", None, None, None]
    assert alone == found["units of the feature", '{"layer": "second"}']
