"""Short names of settings that both a recipe of Engram and a user's program have."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.audits.membership import Membership
from tasks.audits.text import Text
from tasks.audits.text.question import Secrets
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.questions import Pairs
from tasks.audits.unique_feature.training_config import FeatureTraining
from tests.support.settings import with_settings

CONFIGS = [
    (Membership(), "training"),
    (Text(Secrets(repetitions=(1,))), "tuning"),
    (UniqueFeature(Pairs(training=FeatureTraining(patience=0))), "training"),
]


def training_of(config: Any, field: str) -> Any:
    return config.training if hasattr(config, "training") else getattr(config.question, field)


@pytest.mark.parametrize(("config", "field"), CONFIGS)
def test_privacy_by_short_name_keeps_the_recipe(config: Any, field: str) -> None:
    for name in ("privacy.epsilon", "epsilon"):
        private = training_of(with_settings(config, {name: 4}), field)
        assert type(private) is type(training_of(config, field))
        assert private.guarantee.epsilon == 4


@pytest.mark.parametrize(("config", "field"), CONFIGS)
def test_privacy_by_short_name_is_stated_for_a_program(config: Any, field: str) -> None:
    settings = {field: "module:train", "returns": "model", "privacy.epsilon": 4}
    program = training_of(with_settings(config, settings), field)
    assert program.tag == "function"
    assert program.guarantee.epsilon == 4
