"""Where and how fast a run is computed, and how its results are shown. None of it affects a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tasks.compute_context import StrategyName

KeepName = Literal["none", "state"]
KEEPS: tuple[str, ...] = get_args(KeepName)
GpusName = Literal["auto", "none", "wait"]
GPUS: tuple[str, ...] = get_args(GpusName)


@dataclass(frozen=True)
class Execution:
    """Execution settings; never part of a key. None is the default: local cluster, automatic grouping."""

    address: str | None = None  # "local", "auto", "HOST:PORT", or "none" for this process
    # Whether trainings ask for a GPU: where the cluster has one or may get one; never; or always, and wait for it.
    gpus: GpusName = "auto"
    together: int | None = None  # the most jobs in a call, and the most models trained in one step
    tolerate: int = 0  # the number of failed jobs that the tables may lack
    fail_fast: bool = False
    stop_after: float | None = None  # seconds
    way: StrategyName = "auto"  # of training models; auto takes the fastest, chosen once per run, device and network
    # Whether the state of a finished training is kept, so that another run may continue it. States that an unfinished
    # run needs are kept in any case.
    keep: KeepName = "none"
    again: bool = False  # start a new run; stored results are reused all the same
    mlflow: str | None = None  # the tracking store's URI, or "off"; None: an sqlite file inside a local store
    experiment: str | None = None
    report: bool = True  # whether a page is drawn at the end
    show_images: bool = False  # whether a page may show the user's own images
    timeout: float | None = None  # seconds that a job may take; None: derived from jobs of its kind in this run
