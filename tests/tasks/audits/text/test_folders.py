"""Models of three kinds from folders, fine-tuned and evaluated by the command line, and adapters from their owners."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.datasets.catalog import load_texts, pin
from tasks.datasets.dataset import Dataset
from tests.support.shell import Here

TEXTS = [text[:80] for text in load_texts(pin(Dataset("facts")))[:120]]
END = "</s>"
PATTERN = "Patient {number}: code {digits:6}."
SECRET_SETTINGS = ("secrets=6", "references=199", "length=64", f"pattern={PATTERN}")


def train_bpe() -> Any:
    """Train a byte-level BPE tokenizer like that of GPT-2 on these texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=512, special_tokens=["<pad>", END], initial_alphabet=alphabet)
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token=END)


def build_model(kind: str, tokens: int) -> Any:
    import transformers

    torch.manual_seed(0)
    ends = {"vocab_size": tokens, "pad_token_id": 0, "eos_token_id": 1}
    if kind == "t5":
        sizes = {"d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 128, "num_layers": 2}
        return transformers.T5ForConditionalGeneration(
            transformers.T5Config(**ends, **sizes, decoder_start_token_id=0)  # type: ignore[arg-type]
        )
    if kind == "gpt2":
        sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**ends, **sizes, bos_token_id=1))
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**ends, **sizes, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1)  # type: ignore[arg-type]
    )


def save_folder(kind: str, folder: Path) -> Path:
    tokenizer = train_bpe()
    for part in (build_model(kind, len(tokenizer)), tokenizer):
        part.save_pretrained(folder)
    return folder


def write_records(path: Path, texts: list[str]) -> str:
    import json

    path.write_text("".join(json.dumps({"id": str(index), "text": text}) + "\n" for index, text in enumerate(texts)))
    return f"data=records:{path}"


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5"])
def test_each_kind_of_model_ranks_secrets(kind: str, tmp_path: Path, engram: Here) -> None:
    folder = save_folder(kind, tmp_path / kind)
    data = write_records(tmp_path / "texts.jsonl", TEXTS[:20])
    tuned = ("adaptation=lora", "rank=4", "epochs=1", "batch=16", "repetitions=1")
    settings = (data, "examples=0", f"model=folder:{folder}", *SECRET_SETTINGS, *tuned)
    run = engram.json("run", "text", *settings, "--address", "none")
    assert run["state"] == "finished"
    rows = engram.json("results", run["run"], "secrets")
    assert len(rows) == 6
    assert all(0 < row["p_value"] <= 1 and row["exposure_control"] is not None for row in rows)


def train_adapter(folder: Path, texts: list[str], adapter: Path, steps: int) -> None:
    """Train a LoRA adapter with peft and AdamW on the model in the folder."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    settings = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder), settings)
    optimiser = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-2)
    for step in range(steps):
        batch = []
        for index in range(16):
            batch.append(END + texts[(16 * step + index) % len(texts)] + END)
        inputs = tokenizer(batch, return_tensors="pt", padding=True)
        labels = inputs["input_ids"].where(inputs["attention_mask"] == 1, -100)
        torch.autograd.backward(model(**inputs, labels=labels).loss)
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(adapter)


@pytest.mark.slow
@pytest.mark.trained
def test_adapter_reveals_only_its_planted_secrets(tmp_path: Path, engram: Here) -> None:
    folder = save_folder("gpt2", tmp_path / "gpt2")
    planted_settings = ("question=planted", "repetitions=8", "seed=3", *SECRET_SETTINGS)
    engram("probes", "text", *planted_settings, "--out", "probes")
    (split,) = tmp_path.glob("probes*split.csv")
    with split.open(newline="") as file:
        secrets = []
        for row in csv.DictReader(file):
            for _ in range(int(row["repetitions"])):
                secrets.append(row["text"])
    assert len(set(secrets)) >= 2
    order = torch.randperm(len(TEXTS) + len(secrets), generator=torch.Generator().manual_seed(0)).tolist()
    answers = {}
    for name, additional_texts in (("with", secrets), ("without", TEXTS[: len(secrets)])):
        all_texts = [*TEXTS, *additional_texts]
        train_adapter(folder, [all_texts[index] for index in order], tmp_path / name, steps=60)
        settings = (f"model=folder:{folder}+{tmp_path / name}", f"base=folder:{folder}")
        printed = engram("run", "text", *planted_settings, *settings, "--address", "none").stdout
        answers[name] = printed.partition("\n\n")[2].partition(":")[0].lower()
    assert answers["with"] == "memorised"
    assert answers["without"] in ("undecided", "not detected")
