"""How a model goes on after a beginning, and in which ways that gives the text that follows.

- greedy: the likeliest token each time gives all of it. k-extractable, Carlini et al. 2023, definition 3.1.
- near: the likeliest continuation is within `near` of its number of tokens (edit distance).
- n attempts: 1 - (1 - p_z)^n >= `likely` with p_z = prod p(z_t | z_<t): one of n continuations that are drawn token by
  token is these tokens, at least so probably. (n, p)-extractable, Hayes et al. 2024 (arXiv 2410.19482).

Both documents and drawn secrets are asked for in these ways.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tasks.language_models.fine_tuning_config import Reader
    from tasks.language_models.sequence_model import SequenceModel, Tokens

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
GREEDY, NEAR = "greedy", "near"
TOLD, TWIN = "told", "twin"
SHARE, BEYOND = "share reproduced", "reproduced beyond the twins"
ENDS = (
    ("log_p_end", pa.float64()),  # of the tokens after the beginning; null, as what follows, where none are asked for
    ("wrong", pa.int64()),  # of these tokens, those that the likeliest continuation has otherwise
    ("distance", pa.int64()),  # of the likeliest continuation from them: Levenshtein's, in tokens
)


class Ways(Protocol):
    """What counts as reproduced."""

    @property
    def attempts(self) -> tuple[int, ...]: ...
    @property
    def likely(self) -> float: ...
    @property
    def near(self) -> float: ...


def score_ends(model: SequenceModel, prompts: Sequence[Tokens], ends: Sequence[Tokens]) -> dict[str, list[float]]:
    """The columns of ENDS for each end after its prompt."""
    from tasks.language_models.training import Examples, decode_tokens, score_targets

    lengths = [len(prompt) + len(end) for prompt, end in zip(prompts, ends, strict=True)]
    written = decode_tokens(model, prompts, max(map(len, ends)))
    columns: dict[str, list[float]] = {"log_p_end": score_targets(model, Examples(prompts, ends, lengths)).tolist()}
    said = [
        tokens[: tokens.index(model.end) + 1][: len(end)] if model.end in tokens else tokens[: len(end)]
        for tokens, end in zip(written, ends, strict=True)
    ]
    columns["wrong"] = [
        len(end) - sum(one == other for one, other in zip(its, end, strict=False))
        for its, end in zip(said, ends, strict=True)
    ]
    columns["distance"] = [edit_distance(its, end) for its, end in zip(said, ends, strict=True)]
    return columns


def score_secret_ends(
    config: Reader, model: SequenceModel, asked: Sequence[Sequence[str]], around: Sequence[tuple[str, str]]
) -> dict[str, list[float | None]]:
    """The columns of ENDS, and the `tokens` asked for, of the first of each question's texts.

    `around` is what stands before and after the secret in these texts. The beginning is cut where the tokens of the
    candidates part, so that it does not tell which of them is the secret. Only decoder-only models are asked, whose
    beginning is of the same text. ValueError where a text is longer than the model reads.
    """
    from tasks.language_models.sequence_model import DecoderOnly

    if not isinstance(model, DecoderOnly):
        return {name: [None] * len(asked) for name in ("tokens", *dict(ENDS))}
    prompts, ends = [], []
    for texts, (before, after) in zip(asked, around, strict=True):
        open_ended = [before, *(text.removesuffix(after) for text in texts)]
        beginning, *whole = (tokens[:-1] for tokens in model.encode_texts(open_ended, config.length + 1))
        if len(whole[0]) >= config.length:
            raise ValueError(f"length is {config.length} tokens, which a text with a secret reaches; give more")
        shared = shared_beginning([beginning, *whole])
        prompts.append([model.begin, *shared])
        ends.append(whole[0][len(shared) :])
    tokens: list[float | None] = [len(end) for end in ends]
    return {"tokens": tokens, **{name: list(values) for name, values in score_ends(model, prompts, ends).items()}}


def shared_beginning(rows: Sequence[Tokens]) -> Tokens:
    """The first tokens, as far as all rows have the same."""
    return [tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*rows, strict=False))]


def reproductions(ways: Ways, log_p_end: Array, wrong: Array, distance: Array, tokens: int | Array) -> dict[str, Array]:
    """Whether each model reproduces each end, by the way: 1, 0, or NaN where it was not asked for."""
    known = {GREEDY: wrong == 0, NEAR: distance <= ways.near * tokens}
    known |= {name_attempts(n): log_p_end >= log_p for n, log_p in least_log_p(ways).items()}
    return {way: np.where(np.isnan(log_p_end), np.nan, said) for way, said in known.items()}


def least_log_p(ways: Ways) -> Mapping[int, float]:
    """log p_z from which on a text counts as extracted, by the number of attempts."""
    return {n: math.log(-math.expm1(math.log1p(-ways.likely) / n)) for n in ways.attempts}


def name_attempts(n: int) -> str:
    return "1 attempt" if n == 1 else f"{n} attempts"


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    """The fewest tokens that are to be put in, left out or exchanged to make one of the other. Levenshtein 1966."""
    tokens, at = np.array(other), np.arange(len(other) + 1)
    distances = at.copy()
    for count, token in enumerate(one, start=1):
        changed = np.minimum(distances[1:] + 1, distances[:-1] + (tokens != token))
        # What is put in after another: each is one more than what stands before it.
        distances = np.minimum.accumulate(np.concatenate([[count], changed]) - at) + at
    return int(distances[-1])
