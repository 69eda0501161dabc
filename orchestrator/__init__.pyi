# Written by `make docs` from the signatures of the functions in python_calls.py.
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from orchestrator.errors import EngramError as EngramError
from orchestrator.errors import SpecError as SpecError
from orchestrator.runs.report import Report

__all__ = ["EngramError", "SpecError", "audits", "plan", "run", "search"]

def audits() -> dict[str, tuple[str, ...]]: ...
def open(
    run: str | os.PathLike[str],
    store: str | os.PathLike[str] | None = None,
) -> Report: ...
def plan(
    audit: str | os.PathLike[str],
    *,
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    address: str | None = None,
    all_cells: bool | None = None,
    same_code: bool | None = None,
    **fields: Any,
) -> dict[str, Any]: ...
def run(
    audit: str | os.PathLike[str],
    *,
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    observe: Callable[[Mapping[str, Any]], None] | None = None,
    address: str | None = None,
    gpus: str | None = None,
    gpus_per_job: int | None = None,
    together: int | Literal["auto"] | None = None,
    way: str | None = None,
    tolerate: int | None = None,
    fail_fast: bool | None = None,
    stop_after: str | float | None = None,
    max_gpu_hours: float | None = None,
    max_cost: float | None = None,
    prices: str | os.PathLike[str] | None = None,
    timeout: str | float | None = None,
    keep: str | None = None,
    again: bool | None = None,
    all_cells: bool | None = None,
    same_code: bool | None = None,
    mlflow: str | None = None,
    experiment: str | None = None,
    report: bool | None = None,
    show_images: bool | None = None,
    dashboard: bool | None = None,
    **fields: Any,
) -> Report: ...
def search(
    audit: str | os.PathLike[str],
    *,
    over: Mapping[str, str | Sequence[Any]] | None = None,
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    observe: Callable[[Mapping[str, Any]], None] | None = None,
    trials: int | None = None,
    budget: str | float | None = None,
    sampler: str | None = None,
    sampler_seed: int | None = None,
    rungs: Sequence[int] | None = None,
    keep_one_in: int | None = None,
    give_up: float | None = None,
    concurrent: int | None = None,
    address: str | None = None,
    gpus: str | None = None,
    gpus_per_job: int | None = None,
    together: int | Literal["auto"] | None = None,
    way: str | None = None,
    tolerate: int | None = None,
    timeout: str | float | None = None,
    mlflow: str | None = None,
    experiment: str | None = None,
    report: bool | None = None,
    **fields: Any,
) -> Report: ...
