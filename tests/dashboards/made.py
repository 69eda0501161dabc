"""Runs of unique_feature whose tables are made up: written into a real store, with a real run's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import toys

from dashboards.run import Run, open_run
from orchestrator.fields import plain
from orchestrator.journal import Journal
from orchestrator.plan import Plan
from orchestrator.store import Store
from tasks.audits.unique_feature import PRESETS, Summary, UniqueFeature
from tasks.audits.unique_feature.canaries import CANARY_SCORES
from tasks.audits.unique_feature.evaluation import HISTORY
from tasks.audits.unique_feature.summary import summary
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.job import Job

Row = dict[str, Any]
Tables = Mapping[str, Sequence[pa.Table]]


def run(
    store: Store,
    name: str,
    tables: Tables,
    config: UniqueFeature | None = None,
    setting: Row | None = None,
    audit: str = "unique_feature",
) -> Run:
    """A run of this name with these tables, each of one result or several."""
    roots = {}
    for root, parts in tables.items():
        roots[root] = tuple(hashlib.sha256(f"{name} {root} {at}".encode()).hexdigest() for at in range(len(parts)))
        for key, part in zip(roots[root], parts, strict=True):
            store.write(key, part, {})
    jobs = {key: Job(toys.part, toys.Part(at)) for at, key in enumerate(key for keys in roots.values() for key in keys)}
    about = {"audit": audit, "preset": None, "setting": setting or {}, "config": plain(config or embedded())}
    Journal(store.folder("runs") / name).create(about, Plan(jobs, dict.fromkeys(jobs, ()), roots))
    return open_run(store, name)


def sweep(store: Store, name: str, cells: Sequence[Run]) -> Run:
    Journal(store.folder("runs") / name).create({"audit": cells[0].audit, "cells": [cell.name for cell in cells]}, None)
    return open_run(store, name)


def embedded(**fields: Any) -> UniqueFeature:
    """A config whose data sets are the embedded ones, pinned."""
    pins = {name: catalog.pin(Dataset(found)) for name, found in (("data", "digits"), ("probe", "photos"))}
    return replace(PRESETS["quickstart"], **pins | fields)


def tables(canaries: int, effect: float = 0.4, epochs: int = 40, seed: int = 0) -> dict[str, list[pa.Table]]:
    """The tables of a run with so many canaries, each with about this effect on M_w, and none on M."""
    scores = pa.Table.from_pylist(pairs(canaries, effect, seed), CANARY_SCORES)
    return {
        "summary": [summary(Summary(), [scores])],
        "canary_scores": [scores],
        "history": [history(canary, epochs) for canary in range(canaries)],
    }


def pairs(canaries: int, effect: float, seed: int) -> list[Row]:
    draws = np.random.default_rng(seed)
    found = []
    for canary in range(canaries):
        by_seed = draws.normal(0, 0.05)
        row: Row = {"canary": canary, "label": canary % 10, "seed": 1000 + canary}
        for prefix, moved in (("", effect), ("twin_", 0.0)):
            d_r = float(abs(0.2 + by_seed + draws.normal(0, 0.01)))
            m = float(by_seed + draws.normal(0, 0.01))
            row |= {f"{prefix}m": m, f"{prefix}average_d_r": d_r, f"{prefix}average_d_u": d_r + m}
            for images in ("probe", "train"):
                row[f"{prefix}m_w_{images}"] = float(draws.normal(moved, 0.15))
                row |= {f"{prefix}p_{x}_{images}": 0.3 for x in ("u", "r")}
                row[f"{prefix}images_{images}"] = 528
            p_value = float(10 ** (-abs(draws.normal(0, 20)))) if m > 0 else float(1 - draws.random() * 1e-3)
            row |= {f"{prefix}m_{test}_p": p_value for test in ("welch", "paired")}
            row |= {f"{prefix}validation_accuracy": 0.95, f"{prefix}epochs": 40, f"{prefix}best_epoch": 30}
        row |= {f"{name}_effect": row[name] - row[f"twin_{name}"] for name in ("m", "m_w_probe", "m_w_train")}
        found.append(row)
    return found


def history(canary: int, epochs: int) -> pa.Table:
    draws = np.random.default_rng(canary)
    rows = []
    for model in ("canary", "twin"):
        last = int(draws.integers(max(1, epochs // 2), epochs + 1))
        kept = max(1, last - 10)
        for epoch in range(1, last + 1):
            loss = 0.2 + 2 * float(np.exp(-epoch / 6)) + 0.002 * abs(epoch - kept) + float(draws.normal(0, 0.01))
            rows.append(
                {
                    "canary": canary,
                    "seed": 1000 + canary,
                    "model": model,
                    "epoch": epoch,
                    "train_loss": loss,
                    "validation_loss": loss,
                    "validation_accuracy": 0.96 - 0.8 * float(np.exp(-epoch / 5)),
                    "kept": epoch == kept,
                }
            )
    return pa.Table.from_pylist(rows, HISTORY)
