"""A call: jobs of one task sent to one worker together, and what can become of each.

The worker side reads inputs from the store, computes, and commits each result before it answers. Only keys, configs
and outcomes travel; tables do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Item:
    """One job, as it travels: `function` is `module:name`; config is plain data; inputs are keys."""

    key: str
    function: str
    config: Any
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """Jobs of one task for one worker. `delay` (seconds) is how long to wait before sending it (a retry's back-off)."""

    number: int
    task: str
    items: tuple[Item, ...]
    gpus: float = 0.0
    delay: float = 0.0


@dataclass(frozen=True)
class Done:
    """The job's result is in the store. `seconds` is its share of the call's computing time."""

    key: str
    seconds: float
    worker: str


@dataclass(frozen=True)
class Failed:
    """The task function raised: final for this run."""

    key: str
    error: str  # one line: type and message
    traceback: str


@dataclass(frozen=True)
class Missing:
    """Inputs are absent or were damaged (and set aside): their producers must run again."""

    key: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Lost:
    """Nobody's fault: the worker died (`died`), its node went, or reading or the environment failed."""

    key: str
    cause: str
    died: bool = False


@dataclass(frozen=True)
class Refused:
    """The store could not be written: a pause for the whole run."""

    key: str
    cause: str


Outcome = Done | Failed | Missing | Lost | Refused


@dataclass(frozen=True)
class Finished:
    """A call that came back, with one outcome per item. `worker` names host and process, where known."""

    call: Call
    outcomes: tuple[Outcome, ...]
