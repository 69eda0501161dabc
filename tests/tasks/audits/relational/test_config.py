"""Valid settings, and refusals of invalid ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import SpecError
from tasks.audits.relational.config import Answers, Given, Linear, PrivateLinear, Relational, Trained
from tasks.audits.relational.presets import PRESETS, QUICKSTART, TABLE_2_DROP, TABLE_2_SQUAD, tiny
from tasks.datasets.dataset import Dataset
from tasks.language_models.tuning_config import LowRank
from tasks.question_answering.predictions import Predictions
from tests.support.settings import with_settings

CELLS = [config for cells in PRESETS.values() for config in (cells if isinstance(cells, tuple) else (cells,))]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"relation": "lost"}, "relation is 'lost'; allowed: kept, redrawn"),
        ({"adaptation": "half"}, "adaptation is 'half'; allowed: full, lora"),
        ({"split": "even"}, "split is 'even'; allowed: given, drawn"),
        ({"question": "curves"}, "question is 'curves'; allowed: answers, linear, private"),
        ({"system": "hired"}, "system is 'hired'; allowed: trained, given"),
        ({"predictions": "theirs", "split": "drawn"}, "split is not a field of question.system=given, but another"),
        ({"predictions": "theirs", "epochs": 3}, "epochs is not a field of question.system=given, but another"),
        ({"secret": "short"}, "secret has 5 characters; expected at least 16"),
        ({"nonce": "n" * 16}, "secret is empty, but nonce is set; expected the secret of the commitment"),
        ({"sizes": ()}, "sizes is (); it must be pairs of samples and features, each at least 1"),
        ({"sizes": ((0, 5),)}, "it must be pairs of samples and features, each at least 1"),
        ({"epsilons": ()}, "epsilons is empty; it must have at least one"),
    ],
)
def test_invalid_setting_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        with_settings(Relational(), **fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"predictions": "theirs"}, replace(QUICKSTART.question, system=Given(Predictions("theirs")))),
        ({"secret": "s" * 16}, replace(QUICKSTART.question, system=Given(secret="s" * 16))),
        ({"question": "linear"}, Linear()),
        ({"linear.trainings": 3}, Linear(trainings=3)),
        ({"private.trainings": 3}, PrivateLinear(trainings=3)),
        ({"epsilons": (2.0,)}, PrivateLinear((2.0,))),
    ],
)
def test_short_name_selects_question_and_system(fields: dict[str, Any], expected: Any) -> None:
    assert with_settings(QUICKSTART, **fields).question == expected


def test_short_name_keeps_the_settings_of_the_training() -> None:
    system = with_settings(QUICKSTART, rank=4, model="tiny-t5#16x1", epochs=3).question.system
    assert system.tuning.adaptation == LowRank(4)
    assert system.tuning.epochs == 3
    assert system.tuning.batch == 16
    assert system.reading.model.name == "tiny-t5#16x1"
    assert system.reading.length == 128


@pytest.mark.parametrize(
    ("epochs", "interval", "recorded"), [(4, 1, (0, 1, 2, 3, 4)), (5, 2, (0, 2, 4, 5)), (4, 9, (0, 4)), (4, 0, (4,))]
)
def test_model_is_evaluated_before_during_and_after_training(
    epochs: int, interval: int, recorded: tuple[int, ...]
) -> None:
    question = with_settings(Relational(), epochs=epochs, evaluation_interval=interval).question
    assert isinstance(question, Answers)
    assert isinstance(question.system, Trained)
    assert question.system.recorded == recorded


def test_defaults_are_the_published_setting_for_squad() -> None:
    config = Relational()
    assert config == TABLE_2_SQUAD
    question = config.question
    assert isinstance(question, Answers)
    assert isinstance(question.system, Trained)
    tuning = question.system.tuning
    reading = question.system.reading
    assert (question.data.name, reading.model.name, question.numeric) == ("squad", "hub:t5-small", True)
    assert tuning.batch == 128
    assert tuning.learning_rate == 1e-3
    assert tuning.dropout == 0.1
    assert reading.length == 512


@pytest.mark.parametrize("config", CELLS)
def test_tiny_audit_keeps_question_on_embedded_data(config: Relational) -> None:
    small = tiny(config).question
    match config.question:
        case Answers() as question:
            assert isinstance(small, Answers)
            kept_fields = ("numeric", "corruption", "negligible")
            assert [getattr(small, name) for name in kept_fields] == [getattr(question, name) for name in kept_fields]
            assert small.data.name in ("facts", "facts-stated")
            assert small.examples == 48
            assert small.held_out == 48
            assert isinstance(small.system, Trained)
            assert (small.system.replicates, small.system.tuning.epochs) <= (2, 2)
            if isinstance(question.system, Trained):
                assert small.system.relation == question.system.relation
                assert small.system.tuning.guarantee == question.system.tuning.guarantee
        case Linear() as linear:
            assert isinstance(small, Linear)
            for (n, d), (tiny_n, tiny_d) in zip(linear.sizes, small.sizes, strict=True):
                assert max(tiny_n, tiny_d) <= 40
                assert (tiny_n < tiny_d) == (n < d)
                assert (tiny_n == tiny_d) == (n == d)
        case PrivateLinear() as linear:
            assert small == PrivateLinear(linear.epsilons[:2], 20)


def data_of(config: Relational) -> str:
    question = tiny(config).question
    assert isinstance(question, Answers)
    return question.data.name


def test_tiny_audit_matches_kind_of_data() -> None:
    stated = with_settings(QUICKSTART, data=Dataset("facts-stated"))
    assert data_of(TABLE_2_SQUAD) == data_of(stated) == "facts-stated"
    assert data_of(TABLE_2_DROP) == data_of(QUICKSTART) == "facts"
