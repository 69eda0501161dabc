"""The tokenizer of tiny models, and models whose layers lie on several devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasks.external.weights import silence_transformers
from tasks.language_models.pretrained import (
    VOCABULARY,
    load_model,
    spread_over_gpus,
    train_tokenizer,
    vocabulary_of,
)
from tasks.language_models.sequence_model import DecoderOnly
from tasks.language_models.training import decode_tokens, score_texts
from tasks.worker.compute_context import ComputeContext, use_context
from tests.support.shell import Shell
from tests.tasks.language_models.models import TINY, config, question_set, saved, texts

TEXTS = ["How many hens has Ada?", "Ada has 1,200 hens and 23.5% of the land.", "Zoë's café"]


def test_tokens_decode_to_the_same_text() -> None:
    tokenizer = train_tokenizer(TEXTS)
    for text in (*TEXTS, "Adam's 42 sheep, 7.5%", "a (b) c"):
        assert text == tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)


def test_words_and_numbers_are_single_tokens() -> None:
    tokenizer = train_tokenizer(TEXTS)
    pieces = ["▁Ada", "▁has", "▁1", ",", "200", "▁hens", "</s>"]
    assert pieces == tokenizer.convert_ids_to_tokens(tokenizer("Ada has 1,200 hens")["input_ids"])


def test_number_of_words_is_bounded() -> None:
    words = []
    for a in range(20):
        for b in range(20):
            for c in range(20):
                words.append(f"word{chr(97 + a)}{chr(97 + b)}{chr(97 + c)}")
    assert VOCABULARY < len(vocabulary_of([" ".join(words)])) < VOCABULARY + 250


def test_tokens_are_equal_in_another_process(tmp_path: Path) -> None:
    script = f"from tasks.language_models.pretrained import vocabulary_of; print(vocabulary_of({TEXTS!r}))"
    done = Shell(tmp_path).script(script)
    assert done.stdout == f"{vocabulary_of(TEXTS)}\n", done.stderr


def test_model_on_two_devices_has_equal_scores(tmp_path: Path) -> None:
    questions = question_set()
    setting = config(model=saved(tmp_path / "llama", "llama", questions))
    parts = {"model.embed_tokens": "cpu", "model.layers.0": "disk", "model.norm": "cpu", "lm_head": "cpu"}
    spread = {"device_map": parts | {"model.rotary_emb": "cpu"}, "offload_folder": str(tmp_path / "offloaded")}
    decoded = texts(questions)[:6]
    results = []
    with silence_transformers():
        for module, tokenizer in (load_model(setting), load_model(setting, spread=spread)):
            model = DecoderOnly(module.eval(), tokenizer)
            scores = score_texts(setting, model, decoded)
            answers = decode_tokens(model, model.prompts([("How many?", decoded[0])], 32), 4)
            results.append((scores.tolist(), answers))
    assert "disk" in module.hf_device_map.values()
    (full_scores, first), (split_scores, second) = results
    assert full_scores == pytest.approx(split_scores, rel=1e-6)
    assert first == second


def test_model_is_spread_only_over_available_gpus(tmp_path: Path) -> None:
    setting = config(model=saved(tmp_path / "gpt2", "gpt2", question_set()))
    gpu = torch.device("cuda")
    two = ComputeContext(gpus=2)
    assert spread_over_gpus(setting.model, gpu) == {}
    with use_context(two):
        assert spread_over_gpus(setting.model, gpu) == {"device_map": "auto"}
        assert spread_over_gpus(setting.model, torch.device("cpu")) == {}
        assert spread_over_gpus(TINY, gpu) == {}
