"""Small models as their owners save them, and small sets of questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Question, QuestionSet, Scorer
from tasks.language_models.fine_tuning_config import FineTuning
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.pretrained import train_tokenizer
from tasks.language_models.sequence_model import answer_text, question_text

NAMES = (
    *("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal"),
    *("Ida", "Jim", "Kim", "Leo", "Mia", "Ned", "Ola", "Pia"),
)
BART_SIDE = {"layers": 1, "attention_heads": 2, "ffn_dim": 64}
TINY = LanguageModel("tiny-t5#32x1")


def question_set(count: int = 12, held_out: int = 4, scorer: Scorer = "squad") -> QuestionSet:
    """Build questions with numbers from the context as answers; every fourth answer is a word."""
    numbers = np.random.default_rng(0).permutation(90)[: count + held_out] + 10
    questions = []
    for index, number in enumerate(map(int, numbers)):
        name = NAMES[index % len(NAMES)]
        second_name = NAMES[(index // len(NAMES) + 5) % len(NAMES)]
        context = f"{name} of {second_name} has {number} hens and a dog."
        if index % 4 == 3:
            question_and_answer = (f"What has {name}?", "a dog")
        else:
            question_and_answer = (f"How many hens has {name}?", str(number))
        golds = ((question_and_answer[1],), (f"{question_and_answer[1]} of them",))
        questions.append(Question(f"q{index}", f"c{index}", context, question_and_answer[0], golds))
    return QuestionSet(tuple(questions[:count]), tuple(questions[count:]), scorer)


def config(**fields: Any) -> FineTuning:
    """A fine-tuning that takes a second."""
    settings = {"model": TINY, "epochs": 2, "batch": 4, "length": 64, "answer_length": 5, **fields}
    return FineTuning(Dataset("made", "ab"), **settings)


def texts(questions: QuestionSet) -> list[str]:
    result = []
    for question in (*questions.train, *questions.validation):
        result.extend((question_text(question.question, question.context) + " answer:", answer_text(question.golds[0])))
    return result


def saved(folder: Path, kind: str, questions: QuestionSet) -> LanguageModel:
    """A model of this kind with random weights and a tokenizer trained on the questions, saved to a folder."""
    import transformers

    tokenizer = train_tokenizer(texts(questions))
    tokens = len(tokenizer)
    small = {"vocab_size": tokens, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    torch.manual_seed(0)
    if kind == "bart":
        sides = {}
        for side in ("encoder", "decoder"):
            for part, size in BART_SIDE.items():
                sides[f"{side}_{part}"] = size
        positions = {"max_position_embeddings": 128, "decoder_start_token_id": 1, "forced_eos_token_id": None}
        settings = transformers.BartConfig(**small, d_model=32, **sides, **positions)
        module: Any = transformers.BartForConditionalGeneration(settings)
    elif kind == "t5":
        sizes = {"d_model": 32, "d_kv": 16, "num_heads": 2, "d_ff": 64, "num_layers": 1}
        settings = transformers.T5Config(vocab_size=tokens, **sizes, decoder_start_token_id=0)
        module = transformers.T5ForConditionalGeneration(settings)
    elif kind == "gpt2":
        settings = transformers.GPT2Config(**small, n_embd=32, n_layer=1, n_head=2, n_positions=128)
        module = transformers.GPT2LMHeadModel(settings)
    else:
        assert kind == "llama"
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
        settings = transformers.LlamaConfig(**small, **sizes, num_key_value_heads=1, max_position_embeddings=128)
        module = transformers.LlamaForCausalLM(settings)
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return LanguageModel(f"folder:{folder}").pin({})
