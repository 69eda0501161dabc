"""What a run may be asked for, and how it is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tasks.audits.relational.config import Linear, Relational
from tasks.audits.relational.presets import PRESETS, QUICKSTART, TABLE_2_DROP, TABLE_2_SQUAD, tiny
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tasks.training.recipe import Privacy

CELLS = [config for cells in PRESETS.values() for config in (cells if isinstance(cells, tuple) else (cells,))]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"examples": -1}, "examples is -1; it must be at least 0"),
        ({"held_out": -1}, "held_out is -1; it must be at least 0"),
        ({"replicates": 0}, "replicates is 0; it must be at least 1"),
        ({"rank": 0}, "rank is 0; it must be at least 1"),
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"every": -1}, "every is -1; it must be at least 0"),
        ({"link": -1}, "link is -1; it must be at least 0"),
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"accumulate": 0}, "accumulate is 0; it must be at least 1"),
        ({"length": 0}, "length is 0; it must be at least"),
        ({"answer_length": 0}, "answer_length is 0; it must be at least 1"),
        ({"resamples": 0}, "resamples is 0; it must be at least 1"),
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be a finite number above 0"),
        ({"learning_rate": float("inf")}, "learning_rate is inf; it must be a finite number above 0"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be"),
        ({"negligible": 0.0}, "negligible is 0.0; it must be"),
        ({"negligible": 1.0}, "negligible is 1.0; it must be"),
        ({"relation": "lost"}, "relation is 'lost'; it must be one of kept, redrawn"),
        ({"adaptation": "half"}, "adaptation is 'half'; it must be one of full, lora"),
        ({"split": "even"}, "split is 'even'; it must be one of given, drawn"),
        (
            {"split": "drawn", "given": Predictions("theirs")},
            "split is drawn and predictions are given; it must be given, as their owner has trained on it",
        ),
        ({"measures": ()}, "it must be some of answers, linear, private"),
        ({"measures": ("curves",)}, "it must be some of answers, linear, private"),
        ({"privacy": Privacy(1.0)}, "privacy is given and link is not 0; private training is one job"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        Relational(**fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"sizes": ()}, "sizes is (); it must be pairs of samples and features, each at least 1"),
        ({"sizes": ((0, 5),)}, "it must be pairs of samples and features, each at least 1"),
        ({"epsilons": ()}, "epsilons is (); each must be above 0, and there must be one"),
        ({"epsilons": (1.0, float("nan"))}, "each must be above 0, and there must be one"),
        ({"trainings": 0}, "trainings is 0; it must be at least 1"),
        ({"per_decade": 0}, "per_decade is 0; it must be at least 1"),
        ({"private_trainings": 0}, "private_trainings is 0; it must be at least 1"),
    ],
)
def test_a_linear_model_has_samples_features_and_trainings(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Linear(**fields)


@pytest.mark.parametrize(
    ("epochs", "every", "recorded"), [(4, 1, (0, 1, 2, 3, 4)), (5, 2, (0, 2, 4, 5)), (4, 9, (0, 4)), (4, 0, (4,))]
)
def test_the_model_is_asked_before_training_now_and_then_and_after_the_last_epoch(
    epochs: int, every: int, recorded: tuple[int, ...]
) -> None:
    assert recorded == Relational(epochs=epochs, every=every).recorded


def test_what_asks_no_model_is_the_same_whatever_data_and_model_it_names() -> None:
    named = Relational(measures=("linear",), data=Dataset("drop"), model=LanguageModel("hub:t5-base"))
    assert Relational(measures=("linear",)) == named
    assert replace(TABLE_2_DROP, measures=("private",)).given is None
    assert TABLE_2_DROP == replace(TABLE_2_DROP, model=LanguageModel("hub:t5-base"))  # answers are given


def test_the_defaults_are_the_published_setting_for_squad() -> None:
    config = Relational()
    assert config == TABLE_2_SQUAD
    assert ("squad", "hub:t5-small", True) == (config.data.name, config.model.name, config.numeric)
    assert (128, 1e-3, 0.1, 512) == (config.batch, config.learning_rate, config.dropout, config.length)


@pytest.mark.parametrize("config", CELLS)
def test_the_tiny_audit_is_of_the_same_kind_on_embedded_data(config: Relational) -> None:
    small = tiny(config)
    kept = ("measures", "numeric", "relation", "adaptation", "privacy", "corruption", "negligible", "split")
    assert [getattr(config, name) for name in kept] == [getattr(small, name) for name in kept]
    assert small.data.name in ("facts", "facts-stated")
    assert (None, 48, 48) == (small.given, small.examples, small.held_out)
    assert (small.replicates, small.epochs) <= (2, 2)
    for (n, d), (tiny_n, tiny_d) in zip(config.linear.sizes, small.linear.sizes, strict=True):
        assert max(tiny_n, tiny_d) <= 40
        assert (n < d, n == d) == (tiny_n < tiny_d, tiny_n == tiny_d)


def test_the_tiny_audit_of_squad_states_its_answers_and_of_drop_derives_them() -> None:
    assert "facts-stated" == tiny(TABLE_2_SQUAD).data.name == tiny(PRESETS_STATED).data.name
    assert "facts" == tiny(TABLE_2_DROP).data.name == tiny(QUICKSTART).data.name


PRESETS_STATED = replace(QUICKSTART, data=Dataset("facts-stated"))
