"""A small T5 begun at random, and a tokenizer trained on the texts that it is to read."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tasks.language_models.language_model import HEAD, TinyT5

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
SPACE = "▁"  # stands for the space before a word
VOCABULARY = 4096  # words and numbers at most
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


def build_model(sizes: TinyT5, tokens: int, dropout: float) -> Any:
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
