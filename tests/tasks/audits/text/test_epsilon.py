"""The lower bound on epsilon from private fine-tunings, and the detection that an epsilon permits."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from orchestrator.errors import SpecError
from tasks.audits.text import AUDIT
from tasks.audits.text.answer import OBJECTIVES
from tasks.audits.text.config import about
from tasks.audits.text.measures import summary
from tasks.audits.text.secrets.epsilon import AtEpsilon, epsilon, mean_power
from tasks.audits.text.secrets.ranks import Ranking, secrets
from tasks.contract.epsilon_rows import BROKEN
from tasks.contract.summaries import index_rows, row_name
from tasks.training.privacy_config import DifferentialPrivacy
from tasks.training.recipe import Privacy
from tests.support.calibration import bounds
from tests.tasks.audits.text.made_up import configure, make_scores
from tests.tasks.audits.text.test_documents import CONFIG as DOCUMENTS
from tests.tasks.audits.text.test_documents import draw_scores, summary_of

PRIVACY = DifferentialPrivacy(1.0)
CONFIG = configure(repetitions=(1,), privacy=PRIVACY)


def measure(gain: float, seed: int, secrets_: int = 24) -> list[pa.Table]:
    tables = make_scores(gain, seed, secrets_)
    return [secrets(Ranking(CONFIG.level), tables), epsilon(AtEpsilon(PRIVACY, CONFIG.level), tables[:1])]


@pytest.mark.parametrize("epsilon_limit", [0.1, 1.0, 4.0])
def test_pure_epsilon_permits_area_of_its_trade_off(epsilon_limit: float) -> None:
    assert math.exp(epsilon_limit) / (1 + math.exp(epsilon_limit)) == pytest.approx(
        mean_power(Privacy(epsilon_limit, 1e-12)), abs=1e-3
    )


def test_known_secrets_break_the_promise() -> None:
    table = summary(about(CONFIG), measure(40.0, 0, 80))
    verdict = AUDIT.answer(CONFIG, table)
    assert verdict is not None
    assert verdict.answer == BROKEN
    assert "and 1 according to the accountant." in verdict.sentence
    rows = index_rows(table)
    assert rows[row_name("share with small p", level=0.05)]["estimate"] == 1.0
    power_limit = rows[row_name("share with small p, at most", level=0.05)]["estimate"]
    assert PRIVACY.power(0.05) == pytest.approx(power_limit)


def test_unknown_secrets_rarely_bound_epsilon() -> None:
    false_bounds = sum(measure(0.0, seed)[1]["epsilon"][0].as_py() > 0 for seed in range(100))
    assert false_bounds <= bounds(0.05, 100)[1]


def test_private_training_protects_single_texts() -> None:
    with pytest.raises(
        SpecError, match=r"repetitions: expected 1 with privacy, got 1, 4\..*repetitions=1, or deduplicate=true"
    ):
        configure(CONFIG, repetitions=(1, 4))
    configure(CONFIG, repetitions=(1, 4), deduplicate=True)


def test_objectives_are_effect_and_held_out_loss() -> None:
    table = summary_of(draw_scores(0.5, 1))
    effect = OBJECTIVES.memorization.row(DOCUMENTS, table)
    loss = OBJECTIVES.utility.row(DOCUMENTS, table)
    assert effect is not None
    assert pytest.approx(effect["estimate"], abs=0.1) == 0.5
    assert loss is not None
    assert pytest.approx(loss["estimate"], abs=0.3) == 2.0
    assert OBJECTIVES.utility.row(CONFIG, summary(about(CONFIG), measure(0.0, 1))) is None
