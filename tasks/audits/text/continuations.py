"""How a model continues a text, and the criteria by which the continuation reproduces the end of the text.

- greedy: the most likely continuation equals the end. k-extractable, Carlini et al. 2023, definition 3.1.
- near-verbatim: the edit distance of that continuation is at most `edit_distance` times the number of tokens.
- n attempts: 1 - (1 - p_z)^n >= `probability` with p_z = prod p(z_t | z_<t), the probability that a sampled
  continuation equals the end. (n, p)-extractable, Hayes et al. 2024 (arXiv 2410.19482).

Documents and secrets share these criteria.
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
GREEDY = "greedy"
NEAR = "near-verbatim"
BY_TRAINED = "trained model"
BY_CONTROL = "control model"
SHARE = "share reproduced"
BEYOND = "reproduced beyond the control models"
ENDS = (
    ("log_p_end", pa.float64()),  # of the end; null, like the columns below, if the model does not continue the text
    ("mismatches", pa.int64()),  # number of tokens in which the most likely continuation differs from the end
    ("edit_distance", pa.int64()),  # between the end and the most likely continuation, in tokens (Levenshtein)
)


class Criteria(Protocol):
    """The criteria for a reproduction."""

    @property
    def attempts(self) -> tuple[int, ...]: ...
    @property
    def probability(self) -> float: ...
    @property
    def edit_distance(self) -> float: ...


def score_ends(model: SequenceModel, prompts: Sequence[Tokens], ends: Sequence[Tokens]) -> dict[str, list[float]]:
    """Score the end of each text, given its prompt (columns of ENDS)."""
    from tasks.language_models.training import Examples, decode_tokens, score_targets

    lengths = [len(prompt) + len(end) for prompt, end in zip(prompts, ends, strict=True)]
    decoded_rows = decode_tokens(model, prompts, max(map(len, ends)))
    columns: dict[str, list[float]] = {"log_p_end": score_targets(model, Examples(prompts, ends, lengths)).tolist()}
    columns |= {"mismatches": [], "edit_distance": []}
    for tokens, end in zip(decoded_rows, ends, strict=True):
        if model.end in tokens:
            ended = tokens[: tokens.index(model.end) + 1]
        else:
            ended = tokens
        continuation = ended[: len(end)]
        matches = sum(token == end_token for token, end_token in zip(continuation, end, strict=False))
        columns["mismatches"].append(len(end) - matches)
        columns["edit_distance"].append(edit_distance(continuation, end))
    return columns


def score_secret_ends(
    config: Reader,
    model: SequenceModel,
    candidates_by_question: Sequence[Sequence[str]],
    around: Sequence[tuple[str, str]],
) -> dict[str, list[float | None]]:
    """Score the secret in the first text of each question (columns `tokens` and ENDS).

    `around` contains the text before and after the secret. The prompt ends before the first token in which the
    candidates differ, so that it does not reveal the secret. Models that are not decoder-only yield None, because their
    prompt is not part of the same text. Raises ValueError if a text is longer than `length`.
    """
    from tasks.language_models.sequence_model import DecoderOnly

    if not isinstance(model, DecoderOnly):
        return {name: [None] * len(candidates_by_question) for name in ("tokens", *dict(ENDS))}
    prompts = []
    ends = []
    for texts, (before, after) in zip(candidates_by_question, around, strict=True):
        open_ended = [before, *(text.removesuffix(after) for text in texts)]
        beginning, *candidate_tokens = (tokens[:-1] for tokens in model.encode_texts(open_ended, config.length + 1))
        if len(candidate_tokens[0]) >= config.length:
            raise ValueError(
                f"length: expected more than the {len(candidate_tokens[0])} tokens of a text with a secret, got "
                f"{config.length}. Raise length."
            )
        shared = shared_beginning([beginning, *candidate_tokens])
        prompts.append([model.begin, *shared])
        ends.append(candidate_tokens[0][len(shared) :])
    tokens: list[float | None] = [len(end) for end in ends]
    return {"tokens": tokens, **{name: list(values) for name, values in score_ends(model, prompts, ends).items()}}


def shared_beginning(rows: Sequence[Tokens]) -> Tokens:
    """Return the longest common prefix of all rows."""
    return [tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*rows, strict=False))]


def reproductions(
    criteria: Criteria, log_p_end: Array, mismatches: Array, distance: Array, tokens: int | Array
) -> dict[str, Array]:
    """Return whether each model reproduces each end, by criterion: 1, 0, or NaN if the text was not continued."""
    is_reproduced = {GREEDY: mismatches == 0, NEAR: distance <= criteria.edit_distance * tokens}
    is_reproduced |= {name_attempts(n): log_p_end >= log_p for n, log_p in least_log_p(criteria).items()}
    result = {}
    for way, matches in is_reproduced.items():
        result[way] = np.where(np.isnan(log_p_end), np.nan, matches)
    return result


def least_log_p(criteria: Criteria) -> Mapping[int, float]:
    """Return the log p_z above which a text counts as extracted, for each number of attempts."""
    result = {}
    for n in criteria.attempts:
        result[n] = math.log(-math.expm1(math.log1p(-criteria.probability) / n))
    return result


def name_attempts(n: int) -> str:
    return "1 attempt" if n == 1 else f"{n} attempts"


def edit_distance(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the smallest number of insertions, deletions and substitutions that turn one into the other. Levenshtein
    1966.
    """
    tokens = np.array(second)
    columns = np.arange(len(second) + 1)
    distances = columns.copy()
    for count, token in enumerate(first, start=1):
        changed = np.minimum(distances[1:] + 1, distances[:-1] + (tokens != token))
        # Insertions: each entry costs at most one more than the entry before it.
        distances = np.minimum.accumulate(np.concatenate([[count], changed]) - columns) + columns
    return int(distances[-1])
