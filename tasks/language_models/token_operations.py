"""The operations of training and reading with a language model, from its sizes, for planning.

A weight that multiplies tokens takes two floating-point operations for each token forwards and four backwards, so a
training takes six (Kaplan et al. 2020, "Scaling laws for neural language models", section 2.1). Attention adds 4 width
length operations for each token and layer forwards. Other operations are counted by the bytes that they move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from tasks.contract.operations import ATTENTION, BYTES, LAUNCHES, LOW, PRODUCT, Operations
from tasks.language_models.language_model import LanguageModel, ModelError, model_folder
from tasks.training.update_costs import FLOAT, OPTIMISERS, PRIVATE

CHARACTERS = 4.0  # of English text for each token of a trained tokenizer
SAMPLED = 1000  # texts whose length is measured
WORDS = 1000  # tokens of a tiny T5, whose tokenizer is trained on its texts
BYTE_TOKENS = 258
# For each token, layer and column of the network: numbers that norms, activations, dropout and residual sums read and
# write, forwards and backwards.
PASSES = 100.0
OPERATIONS = 90.0  # operations that each layer starts in a training step
DECODED = 128  # texts that are continued together
SHARED = 3.0  # candidates of a text share its beginning, which is read once


@dataclass(frozen=True)
class Sizes:
    """The sizes of a transformer. Layers of a decoder that reads an encoder have a second attention."""

    width: int
    inner: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int
    heads: int
    gated: bool = False

    @property
    def encoder_weights(self) -> float:
        return self.encoder_layers * (4 * self.width**2 + self._perceptron)

    @property
    def decoder_weights(self) -> float:
        attentions = 8 if self.encoder_layers else 4
        return self.decoder_layers * (attentions * self.width**2 + self._perceptron)

    @property
    def head_weights(self) -> float:
        return float(self.width * self.vocabulary)

    @property
    def parameters(self) -> float:
        return self.encoder_weights + self.decoder_weights + self.head_weights

    @property
    def tensors(self) -> int:
        return 8 * self.encoder_layers + 13 * self.decoder_layers

    @property
    def _perceptron(self) -> float:
        return (3 if self.gated else 2) * self.width * self.inner


# Published sizes of the models of the presets, for a machine without their files. Raffel et al. 2020, "Exploring the
# limits of transfer learning with a unified text-to-text transformer", section 3.1.2 and appendix A.
PUBLISHED: Mapping[str, Sizes] = {
    "hub:t5-small": Sizes(512, 2048, 6, 6, 32128, 8),
    "hub:t5-base": Sizes(768, 3072, 12, 12, 32128, 12),
    "hub:t5-large": Sizes(1024, 4096, 24, 24, 32128, 16),
}


def sizes_of(model: LanguageModel) -> Sizes | None:
    """Return the sizes of a model from its config file or its publication, or None if neither is known."""
    tiny = model.tiny_sizes
    if tiny is not None:
        encoder_layers = tiny.layers if tiny.kind == "t5" else 0
        vocabulary = WORDS if tiny.kind == "t5" else BYTE_TOKENS
        heads = max(1, tiny.width // 16)
        return Sizes(tiny.width, 4 * tiny.width, encoder_layers, tiny.layers, vocabulary, heads)
    try:
        return _parse_sizes(json.loads((model_folder(model) / "config.json").read_text(encoding="utf-8")))
    except (ModelError, OSError, ValueError, KeyError, TypeError):
        return PUBLISHED.get(model.name)


def _parse_sizes(config: Mapping[str, Any]) -> Sizes:
    width = _first(config, "d_model", "hidden_size", "n_embd")
    layers = _first(config, "num_layers", "num_hidden_layers", "n_layer")
    is_pair = bool(config.get("is_encoder_decoder"))
    return Sizes(
        width,
        _first(config, "d_ff", "intermediate_size", "n_inner", default=4 * width),
        layers if is_pair else 0,
        config.get("num_decoder_layers") or layers,
        _first(config, "vocab_size"),
        _first(config, "num_heads", "num_attention_heads", "n_head", default=max(1, width // 64)),
        "llama" in str(config.get("model_type")) or bool(config.get("is_gated_act")),
    )


def _first(config: Mapping[str, Any], *names: str, default: int = 0) -> int:
    for name in names:
        if config.get(name):
            return int(config[name])
    if default:
        return default
    raise KeyError(names[0])


class Reads(Protocol):
    """Settings with which texts are read."""

    @property
    def model(self) -> LanguageModel: ...
    @property
    def length(self) -> int: ...


class Trains(Reads, Protocol):
    """Settings with which a model is trained."""

    @property
    def batch(self) -> int: ...
    @property
    def accumulate(self) -> int: ...
    @property
    def adaptation(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def privacy(self) -> object: ...


def mean_tokens(model: LanguageModel, texts: Sequence[str], length: int) -> float:
    """Return the expected number of tokens of a text, of which at most `length` are read."""
    is_bytes = model.tiny_sizes is not None and model.tiny_sizes.kind == "gpt"
    characters = 1.0 if is_bytes else CHARACTERS
    counts = [min(float(length), 1 + len(text) / characters) for text in islice(texts, SAMPLED)]
    return sum(counts) / max(1, len(counts))


def training_operations(config: Trains, prompt: float, answer: float) -> Operations | None:
    """Return the operations of training on one text: `prompt` tokens are read and `answer` tokens are learned.

    Returns None for a model of unknown sizes.
    """
    sizes = sizes_of(config.model)
    if sizes is None:
        return None
    is_lora = config.adaptation == "lora"
    private = PRIVATE if config.privacy is not None else 1.0
    passes = (4.0 if is_lora else 6.0) * private
    forward = _forward(sizes, prompt, answer)
    moved, started = OPTIMISERS["adafactor"]
    trained = 0.01 * sizes.parameters if is_lora else sizes.parameters
    layers = sizes.encoder_layers + sizes.decoder_layers
    low = config.precision == "bfloat16"
    part = max(1, config.batch // config.accumulate)
    result = {
        PRODUCT: passes / 2 * forward[PRODUCT],
        ATTENTION: passes / 2 * forward[ATTENTION],
        BYTES: private * (0.5 if low else 1.0) * 3 * forward[BYTES] + moved * trained / config.batch,
        LAUNCHES: OPERATIONS * layers / part + started * sizes.tensors / config.batch,
    }
    return _in_precision(result, low)


def training_bytes(config: Trains, prompt: int, answer: int) -> float:
    """Return the device memory of training on texts of at most these lengths in tokens. 0 for unknown sizes.

    Weights and gradients are float32, and Adafactor's moments are small. Each layer keeps 34 numbers of 2 bytes for
    each token and column, and 5 for each pair of tokens and head (Korthikanti et al. 2022, "Reducing activation
    recomputation in large transformer models", eq. 1), twice as many bytes in float32. The loss keeps three copies of
    the logits.
    """
    sizes = sizes_of(config.model)
    if sizes is None:
        return 0.0
    trained = 0.01 * sizes.parameters if config.adaptation == "lora" else sizes.parameters
    if sizes.encoder_layers:
        stacks = [(sizes.encoder_layers, prompt), (1.5 * sizes.decoder_layers, answer)]
        logits = answer * sizes.vocabulary
    else:
        stacks = [(sizes.decoder_layers, prompt + answer)]
        logits = (prompt + answer) * sizes.vocabulary
    number = 1.0 if config.precision == "bfloat16" else 2.0
    values = 3.0 * FLOAT * logits
    for layers, tokens in stacks:
        values += number * layers * (34 * tokens * sizes.width + 5 * sizes.heads * tokens**2)
    return FLOAT * (sizes.parameters + trained) + values * max(1, config.batch // config.accumulate)


def reading_operations(config: Reads, tokens: float, precision: str = "float32") -> Operations | None:
    """Return the operations of scoring one text of so many tokens, or None for a model of unknown sizes."""
    sizes = sizes_of(config.model)
    if sizes is None:
        return None
    forward = _forward(sizes, 0.0 if not sizes.encoder_layers else tokens, tokens)
    layers = sizes.encoder_layers + sizes.decoder_layers
    return _in_precision({**forward, LAUNCHES: OPERATIONS / 3 * layers / DECODED}, precision == "bfloat16")


def continuing_operations(config: Reads, prompt: float, answer: float, precision: str = "float32") -> Operations | None:
    """Return the operations of reading a text and decoding `answer` tokens one after another.

    Each decoded token reads all weights of the decoder once for the texts that are continued together. Returns None for
    a model of unknown sizes.
    """
    sizes = sizes_of(config.model)
    if sizes is None:
        return None
    forward = _forward(sizes, prompt, answer)
    weights = sizes.decoder_weights + sizes.head_weights
    layers = sizes.decoder_layers
    result = {
        **forward,
        BYTES: forward[BYTES] + answer * FLOAT * (weights / DECODED + 2 * prompt * sizes.width * layers),
        LAUNCHES: OPERATIONS / 2 * layers * (1 + answer) / DECODED,
    }
    return _in_precision(result, precision == "bfloat16")


def _forward(sizes: Sizes, prompt: float, answer: float) -> dict[str, float]:
    """Return the operations of reading both texts once."""
    width = sizes.width
    if sizes.encoder_layers:
        products = sizes.encoder_weights * prompt + (sizes.decoder_weights + sizes.head_weights) * answer
        products += 2 * sizes.decoder_layers * width**2 * prompt  # keys and values of the encoder's output
        pairs = sizes.encoder_layers * prompt**2 + sizes.decoder_layers * answer * (answer + prompt)
        rows = sizes.encoder_layers * prompt + 1.5 * sizes.decoder_layers * answer
        logits = answer * sizes.vocabulary
    else:
        tokens = prompt + answer
        products = (sizes.decoder_weights + sizes.head_weights) * tokens
        pairs = sizes.decoder_layers * tokens**2
        rows = sizes.decoder_layers * tokens
        logits = tokens * sizes.vocabulary
    values = PASSES / 3 * rows * width + 5 * sizes.heads * pairs + 3 * logits
    return {PRODUCT: 2 * products, ATTENTION: 4 * width * pairs, BYTES: FLOAT * values}


def _in_precision(operations: dict[str, float], low: bool) -> Operations:
    if not low:
        return operations
    renamed = {PRODUCT: PRODUCT + LOW, ATTENTION: ATTENTION + LOW}
    return {renamed.get(kind, kind): amount for kind, amount in operations.items()}


def known(operations: Mapping[str, Operations | None]) -> dict[str, Operations]:
    """Return the units whose operations are known."""
    return {unit: counted for unit, counted in operations.items() if counted is not None}
