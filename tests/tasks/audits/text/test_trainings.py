"""Training texts of a pair of models, and a small GPT that learns repeated secrets."""

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
from tests.tasks.audits.text.made_up import configure, pair_of

FACTS = pin(Dataset("facts"))
CONFIG = configure(SMOKE, data=FACTS)


def test_each_secret_is_in_one_of_two_models() -> None:
    models = [pair_of(CONFIG, 0, side) for side in range(2)]
    all_secrets = draw_secrets(models[0])
    assert all_secrets == draw_secrets(models[1])
    assert [secret.repetitions for secret in all_secrets] == [1, 4, 16, 1, 4, 16]
    assert {secret.side for secret in all_secrets} == {0, 1}
    for side, model in enumerate(models):
        texts = training_texts(model, all_secrets)
        assert list(load_texts(FACTS)[:20]) == texts[:20]
        assert [secret.repetitions * (secret.side == side) for secret in all_secrets] == [
            texts.count(secret.text) for secret in all_secrets
        ]
    assert draw_secrets(pair_of(CONFIG, 1, 0)) != all_secrets


def test_control_run_trains_on_other_secrets() -> None:
    proper = draw_secrets(pair_of(configure(CONFIG, is_null=False), 0, 0))
    null = draw_secrets(pair_of(configure(CONFIG, is_null=True), 0, 0))
    assert [secret.text for secret in proper] == [secret.text for secret in null]
    assert all(secret.training_text == secret.text for secret in proper)
    assert all(secret.training_text != secret.text for secret in null)
    assert all(len(secret.training_text) == len(secret.text) for secret in null)


def test_texts_are_records_or_the_contexts_of_questions(tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text('{"id": "a", "text": "One."}\n{"id": "b", "text": "Two."}\n')
    records = pin(Dataset(f"records:{file}"))
    assert load_texts(records) == ("One.", "Two.")
    with pytest.raises(DatasetError, match=r"examples is 3; records:.* has 2 texts"):
        trainings(configure(CONFIG, data=records, examples=3))
    with pytest.raises(DatasetError, match="contains images, not questions"):
        load_texts(pin(Dataset("digits")))


def test_small_gpt_reads_bytes() -> None:
    tokenizer = byte_tokenizer()
    text = "Grüße, 42 €\n"
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(text.encode()) == len(tokens)
    assert text == tokenizer.decode(tokens)
    assert len(tokenizer) == 258


def test_score_of_text_is_sum_over_tokens() -> None:
    config = pair_of(CONFIG, 0, 0)
    model = prepare_model(config, (), torch.device("cpu"))
    texts = ["Ab", "Something longer.", "Ab"]
    scores = score_texts(config, model, texts)
    (tokens,) = model.encode_texts(texts[:1], 128)
    with torch.no_grad():
        logits = model.module(torch.tensor([[model.begin, *tokens[:-1]]])).logits[0].double()
    by_hand = logits.log_softmax(-1)[range(len(tokens)), tokens].sum()
    assert float(by_hand) == pytest.approx(scores[0], rel=1e-5)
    assert scores[0] == pytest.approx(scores[2], rel=1e-6)
    assert len(tokens) == 3  # two bytes and the end


@pytest.mark.trained
def test_model_knows_only_its_repeated_secrets() -> None:
    config_with_secrets = configure(CONFIG, repetitions=(24,), epochs=6, learning_rate=5e-3)
    exposures = []
    for config in (config_with_secrets, configure(config_with_secrets, is_null=True)):
        table = secrets(Ranking(0.05), [score_secrets(pair_of(config, 0, side), ()) for side in range(2)])
        exposures.append([np.mean(table[name].to_numpy()) for name in ("exposure", "exposure_control")])
    (trained_exposure, control_exposure), (null_exposure, _) = exposures
    assert trained_exposure > 4  # at most 7.6 bits; 1.4 without memory
    assert max(control_exposure, null_exposure) < 3.5
