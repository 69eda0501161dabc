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
ASCII = string.ascii_letters + string.digits + string.punctuation  # always among the tokens
# A word, a number or one other character, each with the space before it.
PIECE = rf"{SPACE}?(?:[^\W\d_{SPACE}]+|[0-9]+|[^\w{SPACE}])"


def tokenizer_of(texts: Iterable[str]) -> Any:
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


def model_of(sizes: TinyT5, tokens: int, dropout: float) -> Any:
    """The model, its weights drawn from torch's current random state as T5's are (Raffel et al. 2020)."""
    from transformers import T5Config, T5ForConditionalGeneration

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
    return T5ForConditionalGeneration(config)
