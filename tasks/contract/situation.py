"""The situations in which a user needs an audit: what they have, what they suspect, and what they have to enter."""

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
    "outputs": "only the outputs of a third-party model",
}
FEAR: Mapping[Fear, str] = {
    "image": "the model memorised a detail of a single training image, such as a name",
    "set": "the model still contains a set of images that it should have forgotten",
    "answer": "the model memorised the answer to a question about a text",
    "secret": "a language model reveals a secret, an id or a text from its training data",
    "unknown": "not known: the model may have memorised anything",
}


@dataclass(frozen=True)
class Asked:
    """A config field that the user has to set, with a question and an example answer.

    If `optional`, the answer may be empty; `default` then replaces it, or the field's own default if `default` is
    empty. `sets` contains other fields that are set if the answer is not the default.
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
    """The questions for a user who has one thing and fears another.

    The config starts from `preset` (None: the defaults) with the fields in `sets` changed. If `table` names a field
    that the user leaves empty, probes are exported first, and the owner of the model returns the outputs. A random
    secret is then generated for the field named by `secret`. `hint` is a line that is printed before the questions.
    """

    have: Have
    fear: Fear
    asks: tuple[Asked, ...]
    preset: str | None = None
    sets: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    table: str = ""
    secret: str = ""
    hint: str = ""
