"""Language models ready for training: loaded from a folder or built with random weights, optionally with adapters.

The tokenizer of a tiny T5 is trained on its training texts. A tiny GPT reads bytes.
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
from tasks.language_models.sharding import mesh_of_ranks, shard_model
from tasks.numerics.seeds import drawn_from
from tasks.worker import compute_context
from tasks.worker.ranks import current_ranks, in_turn

PAD = "<pad>"
END = "</s>"
UNKNOWN = "<unk>"
SPACE = "▁"  # stands for the space before a word
VOCABULARY = 4096  # maximum number of words and numbers
POSITIONS = 1024  # maximum length for a tiny GPT, in bytes
SIMILARITY = 0.4  # scale of queries and keys; the score of equal tokens is about 16 times its square
NEARNESS = 2.0  # standard deviation of the scores by relative position
ASCII = string.ascii_letters + string.digits + string.punctuation  # these are always tokens
# A word, a number or another single character, together with the space before it.
PIECE = rf"{SPACE}?(?:[^\W\d_{SPACE}]+|[0-9]+|[^\w{SPACE}])"


def train_tokenizer(texts: Iterable[str]) -> Any:
    """Train a tokenizer whose tokens are single characters and the most common words and numbers in these texts.

    Other words are split into the longest possible tokens, from the start. Training only counts, so the same texts
    yield the same tokens on any machine.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate(vocabulary_of(texts))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, continuing_subword_prefix=""))
    metaspace = pre_tokenizers.Metaspace(SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([metaspace, pre_tokenizers.Split(Regex(PIECE), "isolated")])
    tokenizer.decoder = decoders.Metaspace(SPACE)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, vocabulary[END])]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN)


def vocabulary_of(texts: Iterable[str]) -> list[str]:
    """Return the special tokens, all characters with and without a preceding space, and the most common pieces."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(re.findall(PIECE, SPACE + text.replace(" ", SPACE)))
    characters = {character for piece in counts for character in piece} | set(ASCII)
    single = sorted(characters | {SPACE + character for character in characters - {SPACE}} | {SPACE})
    commonest = sorted(counts, key=lambda piece: (-counts[piece], piece))[:VOCABULARY]
    return [PAD, END, UNKNOWN, *dict.fromkeys([*single, *commonest])]


def _build_tiny_t5(sizes: TinyModel, tokens: int, dropout: float) -> Any:
    """Build a T5 with weights from torch's current random state.

    Its initial attention imitates that of trained models: tokens attend to equal tokens, each head prefers some
    relative positions, and values are copied. With T5's own initialisation, a model this small needs many minutes to
    learn to read answers from contexts; with this one, half a minute. After Trockman & Kolter 2023, "Mimetic
    initialization of self-attention layers". All other weights are initialised as in T5.
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
    """Return a tokenizer whose tokens are the UTF-8 bytes of a text and an end token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = [PAD, END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)


def _build_tiny_gpt(sizes: TinyModel, tokens: int, dropout: float) -> Any:
    """Build a GPT-2 of these sizes, initialised from torch's current random state."""
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


# Names of dropout probabilities in transformers configs.
DROPOUTS = (
    *("dropout", "dropout_rate", "attention_dropout", "activation_dropout", "hidden_dropout", "hidden_dropout_prob"),
    *("attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop", "resid_dropout", "embed_dropout"),
)
# lora_alpha divided by the rank; 2 is the common choice.
ALPHA = 2


def prepare_model(config: Tuning, texts: Iterable[str], device: torch.device) -> SequenceModel:
    """Return the model on its device, ready for training. A tiny T5's tokenizer is trained on these texts.

    All random numbers follow from the config's seed, and torch's random state is restored. Raises ValueError if the
    model is absent, unreadable, or has too few positions.
    """
    if current_ranks().size > 1 and config.privacy is None:  # opacus clips gradients of whole weights
        mesh = mesh_of_ranks(device)
        with in_turn():  # so that only one rank at a time has the whole model in memory
            model = _trainable_model(config, texts, device, {})
            shard_model(model.module, mesh)
        return model
    spread = spread_over_gpus(config.model, device)
    model = _trainable_model(config, texts, device, spread)
    if not spread:
        model.module.to(device)
    return model


def _trainable_model(
    config: Tuning, texts: Iterable[str], device: torch.device, spread: Mapping[str, Any]
) -> SequenceModel:
    """Return the model with its adapters, on the processor unless it is spread."""
    model = _make_model(config, texts, device, config.dropout, spread)
    if config.adaptation == "lora":
        with drawn_from(config.seed, "adapters", device=device), silence_transformers():
            _add_adapters(model.module, config)
    if config.checkpointing:
        # Activations are recomputed layer by layer, which saves memory.
        model.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def load_reader(config: Reader, device: torch.device) -> SequenceModel:
    """Return the given model on its device. Raises ValueError in the same cases as `prepare_model`."""
    spread = spread_over_gpus(config.model, device)
    model = _make_model(config, (), device, 0.0, spread)
    if not spread:
        model.module.to(device)
    return model


def _make_model(
    config: Reader, texts: Iterable[str], device: torch.device, dropout: float, spread: Mapping[str, Any]
) -> SequenceModel:
    with drawn_from(config.seed, "initial weights", device=device), silence_transformers():
        if config.model.tiny_sizes is None:
            module, tokenizer = load_model(config, dropout, spread)
        else:
            module, tokenizer = _build_tiny_model(config.model.tiny_sizes, dropout, texts)
    model: SequenceModel = (EncoderDecoder if module.config.is_encoder_decoder else DecoderOnly)(module, tokenizer)
    _check_positions(config, model)
    return model


def training_texts(questions: Sequence[Question]) -> list[str]:
    """Return all texts that a model reads or writes when it is trained on these questions."""
    contexts = dict.fromkeys(question_text(question.question, question.context) for question in questions)
    return [*contexts, *(answer_text(question.golds[0]) for question in questions)]


def _build_tiny_model(sizes: TinyModel, dropout: float, texts: Iterable[str]) -> tuple[Any, Any]:
    if sizes.kind == "t5":
        tokenizer = train_tokenizer(texts)
    else:
        tokenizer = byte_tokenizer()
    build = _build_tiny_t5 if sizes.kind == "t5" else _build_tiny_gpt
    return build(sizes, len(tokenizer), dropout), tokenizer


def load_tokenizer(model: LanguageModel, texts: Iterable[str]) -> tuple[Any, int]:
    """Return the model's tokenizer and the end token, without loading weights.

    The tokenizer of a tiny T5 is trained on these texts.
    """
    from transformers import AutoConfig, AutoTokenizer

    sizes = model.tiny_sizes
    if sizes is not None:
        if sizes.kind == "t5":
            tokenizer = train_tokenizer(texts)
        else:
            tokenizer = byte_tokenizer()
        return tokenizer, int(tokenizer.eos_token_id)
    model.pin({})  # raises ModelError if the content has changed
    folder = str(model_folder(model))
    local = {"local_files_only": True, "trust_remote_code": False}
    with silence_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
        settings = AutoConfig.from_pretrained(folder, **local)
    end = first_present(tokenizer.eos_token_id, getattr(settings, "eos_token_id", None))
    if end is None:
        raise ModelError(f"model {model.name}: expected an end token. Set eos_token of its tokenizer.")
    return tokenizer, int(end)


def spread_over_gpus(model: LanguageModel, device: torch.device) -> Mapping[str, Any]:
    """Return the arguments that spread a model over the GPUs of this process. Empty for a single GPU.

    Raises ValueError if the model cannot be spread.
    """
    gpus = compute_context.current_context().gpus
    if gpus == 1 or device.type != "cuda" or model.tiny_sizes is not None:
        return {}
    if find_spec("accelerate") is None:  # installed with peft
        raise ValueError(f"gpus_per_job={gpus} needs {PEFT.advice}")
    return {"device_map": "auto"}


def load_model(config: Reader, dropout: float = 0.0, spread: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """Load the pinned model and tokenizer from a folder or the hub's cache.

    `spread` contains the arguments with which transformers uses several devices.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    config.model.pin({})  # raises ModelError if the content has changed
    folder = str(model_folder(config.model))
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        settings = AutoConfig.from_pretrained(folder, **local)
        for name in DROPOUTS:
            if isinstance(getattr(settings, name, None), int | float):
                setattr(settings, name, dropout)
        kind: Any = AutoModelForSeq2SeqLM if settings.is_encoder_decoder else AutoModelForCausalLM
        arguments = {
            "config": settings,
            "dtype": getattr(torch, config.precision),
            "use_safetensors": True,
            "output_loading_info": True,
            **(spread or {}),
        }
        module, info = kind.from_pretrained(folder, **arguments, **local)
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"model {config.model.name}: transformers cannot read it: {reason}") from None
    missing_weights = sorted(info["missing_keys"])
    if missing_weights:  # transformers would initialise them at random
        raise ModelError(
            f"model {config.model.name}: expected all weights, {len(missing_weights)} are missing, such as "
            f"{missing_weights[0]}. Save the whole model."
        )
    adapter = adapter_folder(config.model)
    return (module if adapter is None else _merge_adapter(module, adapter)), tokenizer


def _merge_adapter(module: Any, adapter: Path) -> Any:
    """Merge the adapter into the model's weights. Raises ModelError if it does not fit."""
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
    """Raise ValueError if the model has too few positions for the longest text.

    T5 has relative positions and no such limit.
    """
    position_count = getattr(model.module.config, "max_position_embeddings", None)
    longest = config.length + (config.answer_length if isinstance(model, DecoderOnly) else 0)
    if isinstance(position_count, int) and position_count < longest:
        settings = "length"
        if isinstance(model, DecoderOnly):
            settings = "length + answer_length"
        raise ValueError(
            f"{settings}: expected at most the {position_count} positions of {config.model.name}, got {longest}. "
            "Lower length."
        )


def _add_adapters(module: Any, config: Tuning) -> None:
    """Add low-rank adapters to every linear layer except the output layer, and freeze all other weights."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ValueError(f"adaptation=lora needs {PEFT.advice}") from None
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
        raise ValueError(
            f"adaptation: {config.model.name} does not support lora: {reason}. Set adaptation=full."
        ) from None
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("lora_" in name)
        if "lora_" in name:
            parameter.data = parameter.data.float()  # the 8 bits of bfloat16 would lose small steps
