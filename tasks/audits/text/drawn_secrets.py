"""The secrets of a run: each with what stands in the training data in its place, and those that it is ranked among."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tasks.audits.text.config import Repetitions, Told
from tasks.audits.text.secret_space import SecretSpace, candidates
from tasks.numerics import seeds

SCORES = pa.schema(
    [
        ("pair", pa.int64()),
        ("secret", pa.int64()),  # its number, from 1
        ("repetitions", pa.int64()),  # in the training data of one model of the pair
        ("inserted", pa.bool_()),  # whether in those of this one; of a null, whether another secret is in its place
        ("log_p", pa.list_(pa.float64())),  # of the text with the secret, and with each of its references, in nats
    ]
)


class Drawing(Protocol):
    """What the secrets of a config are drawn by; `draw` is the seed."""

    @property
    def pattern(self) -> str: ...
    @property
    def secrets(self) -> int: ...
    @property
    def repetitions(self) -> Repetitions: ...
    @property
    def references(self) -> int: ...
    @property
    def told(self) -> Told: ...
    @property
    def draw(self) -> int: ...


@dataclass(frozen=True)
class Secret:
    """A secret of a pair: its number, from 1, the side whose model is told it, and how often."""

    number: int
    side: int
    repetitions: int
    text: str  # what is asked about
    told: str  # what stands in the training data
    others: tuple[str, ...]  # texts of the other candidates


def draw_secrets(config: Drawing) -> list[Secret]:
    """The secrets of a pair, each told to the model of one side by a coin."""
    space, made = SecretSpace(config.pattern), []
    coins = seeds.generator(config.draw, "sides").integers(0, 2, config.secrets)
    for number, side in enumerate(coins.tolist(), start=1):
        secret, other = (space.draw(seeds.generator(config.draw, stream, number)) for stream in ("secret", "other"))
        among = candidates(space, secret, config.references, seeds.generator(config.draw, "references", number))
        first, *rest = (space.write(number, each) for each in among)
        told = first if config.told == "secrets" else space.write(number, other)
        times = config.repetitions[(number - 1) % len(config.repetitions)]
        made.append(Secret(number, side, times, first, told, tuple(rest)))
    return made


def score_table(secrets: Sequence[Secret], scores: Iterable[Sequence[float]], side: int, pair: int = 0) -> pa.Table:
    """log p of each secret's text and of its others', by the model that is told those of this side (SCORES)."""
    rows = [
        {
            "pair": pair,
            "secret": secret.number,
            "repetitions": secret.repetitions,
            "inserted": secret.side == side,
            "log_p": list(log_p),
        }
        for secret, log_p in zip(secrets, scores, strict=True)
    ]
    return pa.Table.from_pylist(rows, SCORES)
