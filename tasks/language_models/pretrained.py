"""A language model ready to be trained: loaded from its folder, or a small one built at random, and adapted.

A small T5's tokenizer is trained on the texts that it is to read; a small GPT reads bytes.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from tasks.contract.extras import PEFT
from tasks.datasets.questions.question import Question
from tasks.external.weights import silence_transformers
from tasks.language_models.fine_tuning_config import Reader, Tuning
from tasks.language_models.language_model import (
    HEAD,
    LanguageModel,
    ModelError,
    TinyModel,
    adapter_folder,
    model_folder,
)
from tasks.language_models.sequence_model import (
    DecoderOnly,
    EncoderDecoder,
    SequenceModel,
    answer_text,
    first_present,
    question_text,
)
from tasks.numerics.seeds import drawn_from
from tasks.worker import compute_context

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
SPACE = "▁"  # stands for the space before a word
VOCABULARY = 4096  # words and numbers at most
POSITIONS = 1024  # of a tiny GPT, in bytes
SIMILARITY = 0.4  # the scale of queries and keys: a token's score for an equal one is about 16 times its square
NEARNESS = 2.0  # standard deviation of the scores by relative position
ASCII = string.ascii_letters + string.digits + string.punctuation  # always among the tokens
# A word, a number or one other character, each with the space before it.
PIECE = rf"{SPACE}?(?:[^\W\d_{SPACE}]+|[0-9]+|[^\w{SPACE}])"


def train_tokenizer(texts: Iterable[str]) -> Any:
    """A tokenizer whose tokens are the commonest words and numbers of these texts, and single characters.

    What is no token is broken into the longest pieces that are, from its start. Built by counting alone, so that the
    same texts give the same tokens anywhere.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate(vocabulary_of(texts))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, continuing_subword_prefix=""))
    metaspace = pre_tokenizers.Metaspace(SPACE)
    made.pre_tokenizer = pre_tokenizers.Sequence([metaspace, pre_tokenizers.Split(Regex(PIECE), "isolated")])
    made.decoder = decoders.Metaspace(SPACE)
    made.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, vocabulary[END])])
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token=PAD, eos_token=END, unk_token=UNKNOWN)


def vocabulary_of(texts: Iterable[str]) -> list[str]:
    """The tokens: the special ones, every character with and without a space before it, then the commonest pieces."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(re.findall(PIECE, SPACE + text.replace(" ", SPACE)))
    characters = {character for piece in counts for character in piece} | set(ASCII)
    single = sorted(characters | {SPACE + character for character in characters - {SPACE}} | {SPACE})
    commonest = sorted(counts, key=lambda piece: (-counts[piece], piece))[:VOCABULARY]
    return [PAD, END, UNKNOWN, *dict.fromkeys([*single, *commonest])]


def _build_tiny_t5(sizes: TinyModel, tokens: int, dropout: float) -> Any:
    """The model, its weights drawn from torch's current random state.

    Its attention begins as that of trained models looks: tokens attend to equal ones, each head to some relative
    positions more than to others, and pass on what they attend to. From T5's own beginning a model this small takes
    many minutes until it reads an answer out of a context, and from this one half a minute. After Trockman & Kolter
    2023, "Mimetic initialization of self-attention layers". Everything else begins as in T5.
    """
    from torch import nn, no_grad
    from transformers import T5Config, T5ForConditionalGeneration
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        vocab_size=tokens,
        d_model=sizes.width,
        d_kv=HEAD,
        num_heads=sizes.width // HEAD,
        d_ff=4 * sizes.width,
        num_layers=sizes.layers,
        dropout_rate=dropout,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    with no_grad():
        for attention in (module for module in model.modules() if isinstance(module, T5Attention)):
            nn.init.orthogonal_(attention.q.weight, SIMILARITY)
            attention.k.weight.copy_(attention.q.weight)
            nn.init.orthogonal_(attention.v.weight)
            attention.o.weight.copy_(attention.v.weight.T)
            if attention.has_relative_attention_bias:
                nn.init.normal_(attention.relative_attention_bias.weight, std=NEARNESS)
    return model


def byte_tokenizer() -> Any:
    """A tokenizer whose tokens are the bytes of a text in UTF-8, and one that ends it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = [PAD, END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token=PAD, eos_token=END)


def _build_tiny_gpt(sizes: TinyModel, tokens: int, dropout: float) -> Any:
    """A GPT-2 of these sizes, its weights drawn from torch's current random state as GPT-2 begins."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=tokens,
            n_positions=POSITIONS,
            n_embd=sizes.width,
            n_layer=sizes.layers,
            n_head=sizes.width // HEAD,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=1,
        )
    )


# The probabilities of dropout in the configs of transformers' models.
DROPOUTS = (
    *("dropout", "dropout_rate", "attention_dropout", "activation_dropout", "hidden_dropout", "hidden_dropout_prob"),
    *("attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop", "resid_dropout", "embed_dropout"),
)
# Adapters are multiplied by this over their rank; twice the rank is what most trainings take.
ALPHA = 2


def prepare_model(config: Tuning, texts: Iterable[str], place: torch.device) -> SequenceModel:
    """The model on its device, ready to be trained. A tiny T5's tokenizer is trained on these texts.

    Whatever is drawn is a function of the config's seed; torch's own random state is as before. ValueError, in one
    line, for a model that cannot be had or read, or one whose positions are too few.
    """
    spread = spread_over_gpus(config.model, place, is_private=config.privacy is not None)
    model = _make_model(config, texts, place, config.dropout, spread)
    if config.adaptation == "lora":
        with drawn_from(config.seed, "adapters", place=place), silence_transformers():
            _add_adapters(model.module, config)
    if not spread:
        model.module.to(place)
    if config.checkpointing:
        # What a layer computes is computed again for its gradients, in the memory of one layer.
        model.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def load_reader(config: Reader, place: torch.device) -> SequenceModel:
    """The model on its device, as it is. Raises ValueError as `prepare_model` does."""
    spread = spread_over_gpus(config.model, place)
    model = _make_model(config, (), place, 0.0, spread)
    if not spread:
        model.module.to(place)
    return model


def _make_model(
    config: Reader, texts: Iterable[str], place: torch.device, dropout: float, spread: Mapping[str, Any]
) -> SequenceModel:
    with drawn_from(config.seed, "initial weights", place=place), silence_transformers():
        if config.model.tiny_sizes is None:
            module, tokenizer = load_model(config, dropout, spread)
        else:
            module, tokenizer = _build_tiny_model(config.model.tiny_sizes, dropout, texts)
    model: SequenceModel = (EncoderDecoder if module.config.is_encoder_decoder else DecoderOnly)(module, tokenizer)
    _check_positions(config, model)
    return model


def training_texts(questions: Sequence[Question]) -> list[str]:
    """Everything that is read and said of these questions in training."""
    contexts = dict.fromkeys(question_text(question.question, question.context) for question in questions)
    return [*contexts, *(answer_text(question.golds[0]) for question in questions)]


def _build_tiny_model(sizes: TinyModel, dropout: float, texts: Iterable[str]) -> tuple[Any, Any]:
    """A tiny model and its tokenizer."""
    tokenizer = train_tokenizer(texts) if sizes.kind == "t5" else byte_tokenizer()
    build = _build_tiny_t5 if sizes.kind == "t5" else _build_tiny_gpt
    return build(sizes, len(tokenizer), dropout), tokenizer


def load_tokenizer(model: LanguageModel, texts: Iterable[str]) -> tuple[Any, int]:
    """The model's tokenizer without its weights, and the token that ends a text.

    A tiny T5's is trained on these texts.
    """
    from transformers import AutoConfig, AutoTokenizer

    sizes = model.tiny_sizes
    if sizes is not None:
        tokenizer = train_tokenizer(texts) if sizes.kind == "t5" else byte_tokenizer()
        return tokenizer, int(tokenizer.eos_token_id)
    model.pin({})  # refuses another content
    place, local = str(model_folder(model)), {"local_files_only": True, "trust_remote_code": False}
    with silence_transformers():
        tokenizer = AutoTokenizer.from_pretrained(place, **local)
        settings = AutoConfig.from_pretrained(place, **local)
    end = first_present(tokenizer.eos_token_id, getattr(settings, "eos_token_id", None))
    if end is None:
        raise ModelError(f"model {model.name} has no token that ends a text; set its tokenizer's eos_token")
    return tokenizer, int(end)


def spread_over_gpus(model: LanguageModel, place: torch.device, is_private: bool = False) -> Mapping[str, Any]:
    """How transformers is to lay the layers of a model on the GPUs of this process; nothing where it has one.

    ValueError, in one line, where that cannot be done.
    """
    gpus = compute_context.current_context().gpus
    if gpus == 1 or place.type != "cuda" or model.tiny_sizes is not None:
        return {}
    if is_private:
        raise ValueError(f"privacy is given and gpus_per_job is {gpus}; gradients of single texts take one GPU")
    if find_spec("accelerate") is None:  # which comes with peft
        raise ValueError(f"gpus_per_job is {gpus}, which needs {PEFT.advice}")
    return {"device_map": "auto"}


def load_model(config: Reader, dropout: float = 0.0, spread: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """The model and the tokenizer of a folder or the hub's cache: their content as it was pinned.

    `spread` is what transformers is told of the devices that its layers are to lie on.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    config.model.pin({})  # refuses another content
    place = str(model_folder(config.model))
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        settings = AutoConfig.from_pretrained(place, **local)
        for name in DROPOUTS:
            if isinstance(getattr(settings, name, None), int | float):
                setattr(settings, name, dropout)
        kind: Any = AutoModelForSeq2SeqLM if settings.is_encoder_decoder else AutoModelForCausalLM
        told = {
            "config": settings,
            "dtype": getattr(torch, config.precision),
            "use_safetensors": True,
            "output_loading_info": True,
            **(spread or {}),
        }
        module, info = kind.from_pretrained(place, **told, **local)
        tokenizer = AutoTokenizer.from_pretrained(place, **local)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"model {config.model.name} cannot be read by transformers: {reason}") from None
    lacking = sorted(info["missing_keys"])
    if lacking:  # transformers would draw them by chance
        raise ModelError(f"model {config.model.name} lacks {len(lacking)} of its weights, such as {lacking[0]}")
    adapter = adapter_folder(config.model)
    return (module if adapter is None else _merge_adapter(module, adapter)), tokenizer


def _merge_adapter(module: Any, adapter: Path) -> Any:
    """The model with the adapter's updates in its own weights; ModelError, in one line, where it does not fit."""
    try:
        from peft import PeftModel
    except ImportError:
        raise ModelError(f"the adapter {adapter} needs {PEFT.advice}") from None
    try:
        return PeftModel.from_pretrained(module, str(adapter), local_files_only=True).merge_and_unload()
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"the adapter {adapter} does not fit its model: {reason}") from None


def _check_positions(config: Reader, model: SequenceModel) -> None:
    """ValueError where the model has fewer positions than the longest text may need; T5's are relative."""
    most = getattr(model.module.config, "max_position_embeddings", None)
    whole = config.length + (config.answer_length if isinstance(model, DecoderOnly) else 0)
    if isinstance(most, int) and most < whole:
        both = "length and answer_length are" if isinstance(model, DecoderOnly) else "length is"
        raise ValueError(f"{both} {whole} tokens; {config.model.name} has {most} positions")


def _add_adapters(module: Any, config: Tuning) -> None:
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
        if "lora_" in name:
            parameter.data = parameter.data.float()  # small steps are lost in the 8 bits of bfloat16
