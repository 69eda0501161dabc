"""Which texts each model of a pair is trained on, and a small GPT that comes to know what it is told often."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.audits.text.presets import SMOKE
from tasks.audits.text.secrets.models import score_secrets, training_texts
from tasks.audits.text.secrets.ranks import Ranking, secrets
from tasks.audits.text.secrets.space import draw_secrets
from tasks.audits.text.trainings import trainings
from tasks.datasets.catalog import load_texts, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.language_models.pretrained import byte_tokenizer, prepare_model
from tasks.language_models.training import score_texts
from tests.tasks.audits.text.made_up import configured, pair_of

FACTS = pin(Dataset("facts"))
CONFIG = configured(SMOKE, data=FACTS)


def test_each_secret_is_told_to_one_model_of_the_pair_as_often_as_its_turn_says() -> None:
    models = [pair_of(CONFIG, 0, side) for side in range(2)]
    drawn = draw_secrets(models[0])
    assert drawn == draw_secrets(models[1])
    assert [secret.repetitions for secret in drawn] == [1, 4, 16, 1, 4, 16]
    assert {0, 1} == {secret.side for secret in drawn}
    for side, model in enumerate(models):
        texts = training_texts(model, drawn)
        assert list(load_texts(FACTS)[:20]) == texts[:20]
        assert [secret.repetitions * (secret.side == side) for secret in drawn] == [
            texts.count(secret.text) for secret in drawn
        ]
    assert draw_secrets(pair_of(CONFIG, 1, 0)) != drawn


def test_a_null_tells_other_secrets_and_asks_about_the_same() -> None:
    proper, null = (draw_secrets(pair_of(configured(CONFIG, told=told), 0, 0)) for told in ("secrets", "others"))
    assert [secret.text for secret in proper] == [secret.text for secret in null]
    assert all(secret.told == secret.text for secret in proper)
    assert all(secret.told != secret.text for secret in null)
    assert all(len(secret.told) == len(secret.text) for secret in null)


def test_texts_are_records_or_the_contexts_of_questions(tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text('{"id": "a", "text": "One."}\n{"id": "b", "text": "Two."}\n')
    records = pin(Dataset(f"records:{file}"))
    assert load_texts(records) == ("One.", "Two.")
    with pytest.raises(DatasetError, match=r"examples is 3; records:.* has 2 texts"):
        trainings(configured(CONFIG, data=records, examples=3))
    with pytest.raises(DatasetError, match="contains images, not questions"):
        load_texts(pin(Dataset("digits")))


def test_a_small_gpt_reads_bytes() -> None:
    tokenizer = byte_tokenizer()
    text = "Grüße, 42 €\n"
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(text.encode()) == len(tokens)
    assert text == tokenizer.decode(tokens)
    assert len(tokenizer) == 258


def test_a_text_scores_the_sum_of_its_tokens_log_probabilities_whatever_stands_beside_it() -> None:
    config = pair_of(CONFIG, 0, 0)
    model = prepare_model(config, (), torch.device("cpu"))
    texts = ["Ab", "Something longer.", "Ab"]
    found = score_texts(config, model, texts)
    (tokens,) = model.encode_texts(texts[:1], 128)
    with torch.no_grad():
        logits = model.module(torch.tensor([[model.begin, *tokens[:-1]]])).logits[0].double()
    by_hand = logits.log_softmax(-1)[range(len(tokens)), tokens].sum()
    assert float(by_hand) == pytest.approx(found[0], rel=1e-5)
    assert found[0] == pytest.approx(found[2], rel=1e-6)
    assert len(tokens) == 3  # two bytes and the end


@pytest.mark.trained
def test_a_model_knows_what_it_was_told_often_and_nothing_of_the_same_format_that_it_was_not() -> None:
    told = configured(CONFIG, repetitions=(24,), epochs=6, learning_rate=5e-3)
    exposures = []
    for config in (told, configured(told, told="others")):
        table = secrets(Ranking(0.05), [score_secrets(pair_of(config, 0, side), ()) for side in range(2)])
        exposures.append([np.mean(table[name].to_numpy()) for name in ("exposure", "exposure_twin")])
    (known, twin), (other, _) = exposures
    assert known > 4  # of 7.6 bits at most; 1.4 where nothing is known
    assert max(twin, other) < 3.5
