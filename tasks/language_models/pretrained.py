"""A language model ready to be trained: loaded from its folder, or built, and adapted as the config says."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tasks.datasets.questions.question import Question
from tasks.extras import PEFT
from tasks.language_models import tiny_t5
from tasks.language_models.fine_tuning_config import FineTuning
from tasks.language_models.language_model import ModelError, model_folder
from tasks.language_models.sequence_model import DecoderOnly, EncoderDecoder, SequenceModel
from tasks.language_models.texts import answer_text, question_text
from tasks.torch_draws import drawn_from

# The probabilities of dropout in the configs of transformers' models.
DROPOUTS = (
    *("dropout", "dropout_rate", "attention_dropout", "activation_dropout", "hidden_dropout", "hidden_dropout_prob"),
    *("attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop", "resid_dropout", "embed_dropout"),
)
# Adapters are multiplied by this over their rank; twice the rank is what most trainings take.
ALPHA = 2


def prepare_model(config: FineTuning, questions: Sequence[Question], place: torch.device) -> SequenceModel:
    """The model in float32, on its device. A tiny one's tokenizer is trained on these questions.

    Whatever is drawn is a function of the config's seed; torch's own random state is as before. ValueError, in one
    line, for a model that cannot be had or read, or one whose positions are too few.
    """
    with drawn_from(config.seed, "initial weights", place=place), quiet():
        module, tokenizer = build_tiny_model(config, questions) if config.model.tiny_sizes else load_model(config)
    model: SequenceModel = (EncoderDecoder if module.config.is_encoder_decoder else DecoderOnly)(module, tokenizer)
    check_positions(config, model)
    if config.adaptation == "lora":
        with drawn_from(config.seed, "adapters", place=place), quiet():
            add_adapters(module, config)
    module.to(place)
    return model


def build_tiny_model(config: FineTuning, questions: Sequence[Question]) -> tuple[Any, Any]:
    """A tiny T5 and its tokenizer."""
    assert config.model.tiny_sizes is not None
    contexts = dict.fromkeys(question_text(question.question, question.context) for question in questions)
    tokenizer = tiny_t5.train_tokenizer([*contexts, *(answer_text(question.golds[0]) for question in questions)])
    return tiny_t5.build_model(config.model.tiny_sizes, len(tokenizer), config.dropout), tokenizer


def load_model(config: FineTuning) -> tuple[Any, Any]:
    """The model and the tokenizer of a folder or the hub's cache: their content as it was pinned."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    config.model.pin({})  # refuses another content
    place = str(model_folder(config.model))
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        settings = AutoConfig.from_pretrained(place, **local)
        for name in DROPOUTS:
            if isinstance(getattr(settings, name, None), int | float):
                setattr(settings, name, config.dropout)
        kind: Any = AutoModelForSeq2SeqLM if settings.is_encoder_decoder else AutoModelForCausalLM
        told = {"config": settings, "dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
        module, info = kind.from_pretrained(place, **told, **local)
        tokenizer = AutoTokenizer.from_pretrained(place, **local)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"model {config.model.name} cannot be read by transformers: {reason}") from None
    lacking = sorted(info["missing_keys"])
    if lacking:  # transformers would draw them by chance
        raise ModelError(f"model {config.model.name} lacks {len(lacking)} of its weights, such as {lacking[0]}")
    return module, tokenizer


def check_positions(config: FineTuning, model: SequenceModel) -> None:
    """ValueError where the model has fewer positions than the longest text may need; T5's are relative."""
    most = getattr(model.module.config, "max_position_embeddings", None)
    whole = config.length + (config.answer_length if isinstance(model, DecoderOnly) else 0)
    if isinstance(most, int) and most < whole:
        both = "length and answer_length are" if isinstance(model, DecoderOnly) else "length is"
        raise ValueError(f"{both} {whole} tokens; {config.model.name} has {most} positions")


def add_adapters(module: Any, config: FineTuning) -> None:
    """Add low-rank adapters to every linear layer but the output's, and let nothing else be trained."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ValueError(f"adaptation is lora, which needs {PEFT.advice}") from None
    settings = LoraConfig(
        r=config.rank,
        lora_alpha=ALPHA * config.rank,
        lora_dropout=config.dropout,
        target_modules="all-linear",
    )
    try:
        inject_adapter_in_model(settings, module)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"adaptation is lora, which {config.model.name} does not take: {reason}") from None
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("lora_" in name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' advice and progress, and peft's, inside: what matters is raised."""
    from transformers.utils import logging as told

    level, bars = told.get_verbosity(), told.is_progress_bar_enabled()
    told.set_verbosity(logging.CRITICAL)
    told.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        told.set_verbosity(level)
        if bars:
            told.enable_progress_bar()
