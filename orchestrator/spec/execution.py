"""Where and how fast a run is computed, and how its results are shown. None of it bears on a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tasks.compute_context import StrategyName

KeepName = Literal["none", "state"]
KEEPS: tuple[str, ...] = get_args(KeepName)


@dataclass(frozen=True)
class Execution:
    """Where and how fast; never part of a key. None is the default: local cluster, automatic grouping."""

    address: str | None = None  # "local", "auto", "HOST:PORT", or "none" for this process
    together: int | None = None  # jobs that share a call, and models that are trained in one step at most
    tolerate: int = 0  # failed jobs that the tables may go without
    fail_fast: bool = False
    stop_after: float | None = None  # seconds
    way: StrategyName = "auto"  # of training models; auto takes the fastest, chosen once per run, device and network
    # What stays of a finished training's state, which another run may go on from to train longer. An unfinished run's
    # stays in any case.
    keep: KeepName = "none"
    again: bool = False  # as a new run, though its results are reused
    mlflow: str | None = None  # the tracking store's URI, or "off"; None: an sqlite file inside a local store
    experiment: str | None = None
    report: bool = True  # whether a page is drawn at the end
    show_images: bool = False  # whether images of the user's own may be seen in it
    timeout: float | None = None  # seconds that a job may take; None: what jobs of its kind take in this run tells
