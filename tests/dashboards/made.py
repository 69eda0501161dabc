"""Runs of unique_feature with synthetic tables in a real store and a real run folder."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import toys

from dashboards.run import Run, open_run
from orchestrator.planning.plan import Plan
from orchestrator.run_folder.journal import Journal
from orchestrator.spec.config_parts import plain
from orchestrator.store import Store
from tasks.audits.unique_feature import PRESETS, UniqueFeature
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS
from tasks.audits.unique_feature.measures.learning_curve import HISTORY
from tasks.audits.unique_feature.pairs.canary_scores import CANARY_SCORES
from tasks.audits.unique_feature.pairs.canary_verdicts import CANARY_VERDICTS
from tasks.audits.unique_feature.population import inked_cells
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.summary import summary
from tasks.contract.job import Job
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph
from tasks.numerics.statistics import proportion
from tests.support.settings import with_settings

Row = dict[str, Any]
Tables = Mapping[str, Sequence[pa.Table]]


def run(
    store: Store,
    name: str,
    tables: Tables,
    config: Any = None,
    setting: Row | None = None,
    audit: str = "unique_feature",
) -> Run:
    """A run of this name with these tables, each of one result or several."""
    roots = {}
    for root, parts in tables.items():
        roots[root] = tuple(
            hashlib.sha256(f"{name} {root} {index}".encode()).hexdigest() for index in range(len(parts))
        )
        for key, part in zip(roots[root], parts, strict=True):
            store.write(key, part, {})
    jobs = {
        key: Job(toys.part, toys.Part(index))
        for index, key in enumerate(key for keys in roots.values() for key in keys)
    }
    about = {"audit": audit, "preset": None, "setting": setting or {}, "config": plain(config or embedded())}
    Journal(store.folder("runs") / name).create(about, Plan(jobs, dict.fromkeys(jobs, ()), roots))
    return open_run(store, name)


def sweep(store: Store, name: str, cells: Sequence[Run]) -> Run:
    Journal(store.folder("runs") / name).create({"audit": cells[0].audit, "cells": [cell.name for cell in cells]}, None)
    return open_run(store, name)


def embedded(**fields: Any) -> UniqueFeature:
    """A config whose data sets are the embedded ones, pinned."""
    pins = {}
    for name, dataset_name in (("data", "digits"), ("probe", "photos")):
        pins[name] = catalog.pin(Dataset(dataset_name))
    return with_settings(PRESETS["quickstart"], {**pins, **fields})


def tables(canaries: int, effect: float = 0.4, epochs: int = 40, seed: int = 0) -> dict[str, list[pa.Table]]:
    """The tables of a run of `canaries` canaries; each has about this effect on M_w, and none on M."""
    scores = pa.Table.from_pylist(pairs(canaries, effect, seed), CANARY_SCORES)
    return {
        "summary": [summary(PublishedCell(), [scores])],
        "canary_scores": [scores],
        "history": [history(canary, epochs) for canary in range(canaries)],
    }


def verdicts(canaries: int) -> pa.Table:
    """Every tenth canary has rank 1 of 201; canary c of the others has rank 2 + c % 200."""
    rows = []
    for canary in range(canaries):
        rows.append(
            {
                "canary": canary,
                "label": canary % 10,
                "pairs": 1,
                "shift": 0.5,
                "members": 201,
                "called": canary % 10 == 0,
            }
            | {"rank": 1 if canary % 10 == 0 else 2 + canary % 200}
        )
    for row in rows:
        row["p_value"] = row["rank"] / 201
        row["adjusted_p"] = min(1.0, 10 * row["p_value"])
    return pa.Table.from_pylist(rows, CANARY_VERDICTS)


def scores(canaries: int, seeds: int, evaluations: int, effect: float = 0.4) -> pa.Table:
    """Scores of each canary, training seed and evaluation.

    For canary c with seed s in evaluation e, M_w is effect * (c + s) + e / 1000, and its twin's (s - 2) / 10.
    """
    rows = []
    for seed, evaluation in itertools.product(range(seeds), range(evaluations)):
        for canary, row in enumerate(pairs(canaries, effect, seed)):
            row |= {"seed": seed, "evaluation": evaluation, "twin_m_w_probe": (seed - 2) / 10}
            row["m_w_probe"] = effect * (canary + seed) + evaluation / 1000
            row["m_w_probe_effect"] = row["m_w_probe"] - row["twin_m_w_probe"]
            rows.append(row)
    column = pa.field("evaluation", pa.int32())
    return pa.Table.from_pylist(rows, pa.schema({field.name: field for field in (*CANARY_SCORES, column)}.values()))


def course(canaries: int, epochs: int = 30, onset: int = 5) -> pa.Table:
    """M_w of canary models is 0.2 above their twins' after `onset`; the fifth epoch before the last is kept."""
    draws = np.random.default_rng(3)
    rows = []
    for canary, model in itertools.product(range(canaries), ("canary", "twin")):
        for epoch in range(epochs + 1):
            remembered = 0.2 if model == "canary" and epoch > onset else 0.0
            loss = None if epoch == 0 else 0.2 + 2 * float(np.exp(-epoch / 6))
            row = {"canary": canary, "label": canary % 10, "seed": 1000 + canary, "model": model, "epoch": epoch}
            row |= {"m": 0.01 * canary, "m_w_probe": remembered + float(draws.normal(0, 0.01)), "validation_loss": loss}
            rows.append(row | {"kept": epoch == epochs - 5})
    return pa.Table.from_pylist(rows)


def latents(models: int, layers: Sequence[str] = ("dense2", "dense3"), units: int = 256) -> pa.Table:
    """Unit 7 is excited by both patches in all models, unit 41 by the feature in canary models alone."""
    draws = np.random.default_rng(4)
    tables = []
    for canary, model, layer in itertools.product(range(models), ("canary", "twin"), layers):
        excited = {name: draws.random(units) ** 4 * 0.2 for name in ("unique", "random")}
        excited["unique"][7], excited["random"][7] = 0.5, 0.5
        excited["unique"][41], excited["random"][41] = (0.8 if model == "canary" else 0.0), 0.05
        columns = {"canary": [canary] * units, "seed": [1] * units, "model": [model] * units, "layer": [layer] * units}
        tables.append(pa.table({**columns, "units": [units] * units, "unit": range(units), **excited}))
    return pa.concat_tables(tables)


def influence(examples: int) -> pa.Table:
    """Self-influence over many orders of magnitude: of training image i, 10 ** -i to 10, evenly spread."""
    values = 10 ** np.linspace(-13, 1, examples)
    return pa.table({"row": range(examples), "self_influence": values, "squared_slopes": values / 3e-4})


def chosen(examples: int, per_end: int) -> pa.Table:
    """The first and last `per_end` images of the table of influences."""
    everything = influence(examples).to_pylist()
    ends = {"highest": everything[: -per_end - 1 : -1], "lowest": everything[:per_end]}
    return pa.Table.from_pylist(
        [
            {"end": end, "rank": 1 + rank, "label": 0, **row}
            for end, rows in ends.items()
            for rank, row in enumerate(rows)
        ]
    )


def traced(examples: int, per_end: int) -> pa.Table:
    """The chosen images, and again with the feature, which lifts them all to about 75000."""
    rows = [
        row | {"with_feature": carries} for row in chosen(examples, per_end).to_pylist() for carries in (False, True)
    ]
    for row in rows:
        if row["with_feature"]:
            row["squared_slopes"] = 75000.0 + row["row"]
        else:
            row["squared_slopes"] = row["squared_slopes"]
    return pa.Table.from_pylist(rows)


def family(models: Sequence[tuple[str, int | None, int | None]], members: int = 201) -> pa.Table:
    """Models by kind, canary and label: the feature has the largest log P of label 3 in all but the twins."""
    draws = np.random.default_rng(5)
    rows = []
    for kind, canary, label in models:
        log_p = draws.normal(-3, 0.1, (members, 10))
        log_p[0, 3] += -0.1 if kind == "twin" else 0.8
        row = {"canary": canary, "label": label, "seed": canary, "model": kind}
        rows += [row | {"member": member, "d": 0.1, "log_p": values.tolist()} for member, values in enumerate(log_p)]
    return pa.Table.from_pylist(rows)


def curves(detected: Mapping[str, float], n: int = 20) -> pa.Table:
    """Curves of estimators with these detection rates at 5 % false positives."""
    rows = []
    for name, rate in detected.items():
        power = np.log(rate) / np.log(0.05)
        for false in np.arange(n + 1) / n:
            interval = proportion(round(n * false**power), n)
            row = {"estimator": name, "false_positive_rate": false, "detection_rate": interval.value, "n": n}
            rows.append(row | {"low": interval.low, "high": interval.high})
    return pa.Table.from_pylist(rows)


def exact_ranks(canaries: int, is_drawn: bool = True) -> pa.Table:
    """Exact ranks: four of five canaries rank the letter A first; 1 of 20 others has p of 0.02."""
    ink = inked_cells(Glyph())
    reading = {"inked": 14, "hits": 14, "hits_by_chance": 7.84, "height": 5, "width": 5}
    reading |= {"ink": ink.tolist(), "slopes": ink.astype(float).tolist()}
    rows: list[Row] = []
    for canary in range(canaries):
        about = {"canary": canary, "label": 3, "seed": canary, "score": "pair", "among": 4457400}
        p_value = 0.5 if canary % 5 == 0 else 1 / 4457400
        rows.append(about | reading | {"feature": "canary", "drawn": is_drawn, "p_value": p_value})
        for number in range(2):
            alarm = canary % 10 == 0 and number == 0
            rows.append(about | {"feature": "other", "drawn": not is_drawn, "p_value": 0.02 if alarm else 0.5})
    rows = [dict.fromkeys(EXACT_RANKS.names) | row | {"exposure": -math.log2(row["p_value"])} for row in rows]
    return pa.Table.from_pylist(rows, EXACT_RANKS)


def detection(calls: Mapping[str, tuple[int, int]], n: int = 20) -> pa.Table:
    """The canary models and twins, n of each, that each estimator detects."""
    return pa.Table.from_pylist(
        [
            {"estimator": name, "model": model, "canary": index, "seed": index, "called": index < count}
            for name, counts in calls.items()
            for model, count in zip(("canary", "twin"), counts, strict=True)
            for index in range(n)
        ]
    )


def pairs(canaries: int, effect: float, seed: int) -> list[Row]:
    draws = np.random.default_rng(seed)
    rows = []
    for canary in range(canaries):
        by_seed = draws.normal(0, 0.05)
        row: Row = {"canary": canary, "label": canary % 10, "seed": 1000 + canary, "evaluation": 0}
        for prefix, moved in (("", effect), ("twin_", 0.0)):
            d_r = float(abs(0.2 + by_seed + draws.normal(0, 0.01)))
            m = float(by_seed + draws.normal(0, 0.01))
            row |= {f"{prefix}m": m, f"{prefix}average_d_r": d_r, f"{prefix}average_d_u": d_r + m}
            for images in ("probe", "train"):
                row[f"{prefix}m_w_{images}"] = float(draws.normal(moved, 0.15))
                row |= {f"{prefix}p_{x}_{images}": 0.3 for x in ("u", "r")}
                row[f"{prefix}images_{images}"] = 528
            if m > 0:
                p_value = float(10 ** (-abs(draws.normal(0, 20))))
            else:
                p_value = float(1 - draws.random() * 1e-3)
            row |= {f"{prefix}m_{test}_p": p_value for test in ("welch", "paired")}
            row |= {f"{prefix}validation_accuracy": 0.95, f"{prefix}epochs": 40, f"{prefix}best_epoch": 30}
        row |= {f"{name}_effect": row[name] - row[f"twin_{name}"] for name in ("m", "m_w_probe", "m_w_train")}
        rows.append(row)
    return rows


def history(canary: int, epochs: int) -> pa.Table:
    draws = np.random.default_rng(canary)
    rows = []
    for model in ("canary", "twin"):
        last = int(draws.integers(max(1, epochs // 2), epochs + 1))
        best_epoch = max(1, last - 10)
        for epoch in range(1, last + 1):
            loss = 0.2 + 2 * float(np.exp(-epoch / 6)) + 0.002 * abs(epoch - best_epoch) + float(draws.normal(0, 0.01))
            rows.append(
                {
                    "canary": canary,
                    "seed": 1000 + canary,
                    "model": model,
                    "epoch": epoch,
                    "train_loss": loss,
                    "validation_loss": loss,
                    "validation_accuracy": 0.96 - 0.8 * float(np.exp(-epoch / 5)),
                    "kept": epoch == best_epoch,
                }
            )
    return pa.Table.from_pylist(rows, HISTORY)
