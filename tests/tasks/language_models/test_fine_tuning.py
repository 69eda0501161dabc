"""Planned fine-tuning of language models: without torch, in links and as text."""

from __future__ import annotations

import pytest

from orchestrator.planning.identity import canonical
from orchestrator.spec.fields import replace_fields
from tasks.datasets.dataset import Dataset
from tasks.language_models.fine_tuning import fine_tune
from tasks.language_models.fine_tuning_config import FineTuning, up_to
from tasks.language_models.language_model import LanguageModel
from tasks.training.chains import chain
from tasks.training.recipe import Privacy

DATA = Dataset("facts", "ab")
TINY = LanguageModel("tiny-t5")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"relation": "lost"}, "relation is 'lost'; it must be one of kept, redrawn"),
        ({"adaptation": "prefix"}, "adaptation is 'prefix'; it must be one of full, lora"),
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"batch": 10, "accumulate": 4}, "accumulate: expected a divisor of batch=10, got 4"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"length": 4}, "length is 4; it must be at least 8"),
        ({"epochs": 3, "recorded": (4,)}, r"recorded is \(4,\); it must be epochs from 0 to 3, ascending"),
        ({"recorded": (2, 1)}, r"recorded is \(2, 1\); it must be epochs"),
    ],
)
def test_ranges_are_checked_on_construction(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FineTuning(DATA, **fields)  # type: ignore[arg-type]


def test_links_of_a_chain_record_all_answers() -> None:
    full_config = FineTuning(DATA, TINY, epochs=6, recorded=(0, 1, 5))
    links = [job.config for job in chain(fine_tune, full_config, 2, part=up_to)]
    assert [link.epochs for link in links] == [2, 4, 6]
    assert [link.recorded for link in links] == [(0, 1), None, (5,)]
    assert [link.asked for link in links] == [(0, 1), (), (5,)]
    last = []
    for job in chain(fine_tune, FineTuning(DATA, TINY, epochs=4), 2, part=up_to):
        last.append(job.config.asked)
    assert last == [(), (4,)]


def test_private_training_in_links_is_refused() -> None:
    private = FineTuning(DATA, TINY, epochs=4, privacy=Privacy(3.0))
    assert len(chain(fine_tune, private, 0, part=up_to)) == 1
    with pytest.raises(ValueError, match="A private training is not divided into links"):
        chain(fine_tune, private, 2, part=up_to)


def test_config_is_read_from_text() -> None:
    parsed_config = replace_fields(
        FineTuning(DATA, TINY),
        {"model": "tiny-t5#32x1", "recorded": "null", "privacy": {"epsilon": 8}, "corruption": "answers"},
    )
    assert LanguageModel("tiny-t5#32x1") == parsed_config.model
    assert parsed_config.asked == ()
    assert canonical(parsed_config)["model"] == {"identity": "tiny t5, 2: 32x1"}
