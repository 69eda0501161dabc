"""The situations in which somebody asks an audit: what they have, what they fear, and what has to be known then."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tasks.contract.ranges import Ranged

Have = Literal["data", "model", "outputs"]
Fear = Literal["image", "set", "answer", "secret", "unknown"]
HAVE: Mapping[Have, str] = {
    "data": "the data, and models can be trained on it here",
    "model": "a trained model as a file",
    "outputs": "only what a model of somebody else says",
}
FEAR: Mapping[Fear, str] = {
    "image": "something in one single training image, such as a name, is kept",
    "set": "a whole set of images that should be forgotten is kept",
    "answer": "the answer to a question about a text is kept",
    "secret": "a secret, an id or a text that a language model saw is given away",
    "unknown": "anything may be kept, and nobody knows what",
}


@dataclass(frozen=True)
class Asked:
    """A field of the config that has to be known, the question for it, and an answer as an example.

    One that is `optional` may be left empty; `default` is the answer then, none where the field keeps its own. `sets`
    are fields that follow where an answer other than the default is given.
    """

    field: str
    question: str
    example: str
    default: str = ""
    optional: bool = False
    sets: Mapping[str, Any] = dataclasses.field(default_factory=dict)


NETWORK = Asked(
    "network",
    "Your network, as package.module:factory (or mlp1 as a stand-in)?",
    "mymodels:make_network",
    "mlp1",
    optional=True,
)
TABLE = Asked("given.outputs", "The table that the owner returned (empty: none yet)?", "outputs.csv", optional=True)


@dataclass(frozen=True)
class Situation(Ranged):
    """What is asked where somebody has this and fears that.

    The config starts from `preset` (none: the defaults) with `sets`. Where `table` names a field that has no answer
    yet, probes are handed out first, and the owner of the model returns their outputs; `secret` names a field for which
    one is then drawn.
    """

    have: Have
    fear: Fear
    asks: tuple[Asked, ...]
    preset: str | None = None
    sets: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    table: str = ""
    secret: str = ""
