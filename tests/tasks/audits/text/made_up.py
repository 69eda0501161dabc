"""Synthetic scores of a pair of models for secrets and references."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from orchestrator.spec.fields import replace_fields
from orchestrator.spec.short_names import find_paths
from tasks.audits.text.config import Text
from tasks.audits.text.given.model import PlantedModel, planted_question
from tasks.audits.text.question import Planted, Secrets
from tasks.audits.text.secrets.models import PairModel, pair_model
from tasks.audits.text.secrets.space import SCORES

Kind = TypeVar("Kind")

REPETITIONS = (1, 4, 16)


def make_scores(gain: float, seed: int, secrets: int = 24, references: int = 499, pair: int = 0) -> list[pa.Table]:
    """Draw the scores of both models of a pair; the trained model scores a secret higher by `gain` nats.

    Scores of candidates have a common standard deviation of 2 nats, and a deviation of 1 nat between models.
    """
    rng = np.random.default_rng(seed)
    rows: list[list[dict[str, object]]] = [[], []]
    for number, side in enumerate(rng.integers(0, 2, secrets).tolist(), start=1):
        common_log_p = rng.normal(-30, 2, references + 1)
        for model in range(2):
            log_p = common_log_p + rng.normal(0, 1, references + 1)
            log_p[0] += gain * (model == side)
            about = {"pair": pair, "secret": number, "repetitions": REPETITIONS[number % 3]}
            rows[model].append(about | {"inserted": model == side, "log_p": log_p.tolist()})
    return [pa.Table.from_pylist(rows_of_model, SCORES) for rows_of_model in rows]


def configure(config: Text = Text(), **fields: Any) -> Text:  # noqa: B008 - frozen
    """Replace these fields, named as on the command line."""
    paths, selected = find_paths(config, fields)
    changed: Text = replace_fields(config, {**selected, **{paths[name]: value for name, value in fields.items()}})
    return changed


def question_of(config: Text, kind: type[Kind]) -> Kind:
    assert isinstance(config.question, kind)
    return config.question


def pair_of(config: Text, pair: int, side: int) -> PairModel:
    return pair_model(question_of(config, Secrets), config.seed, pair, side)


def planted_of(config: Text) -> PlantedModel:
    return planted_question(question_of(config, Planted), config.seed)
