"""Synthetic tables of forgetting runs: models that know the query set to a given degree, and their measurements."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.forgetting.audited import PUBLISHED
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.measures.baselines import BASELINES
from tasks.audits.forgetting.measures.decisions import DECISIONS
from tasks.audits.forgetting.measures.fits import FITS
from tasks.audits.forgetting.measures.power import POWER
from tasks.audits.forgetting.measures.query_confidences import CONFIDENCES
from tasks.audits.forgetting.measures.ratios import DISTANCES, RATIOS
from tasks.audits.forgetting.presets import tiny
from tasks.audits.forgetting.rho import SCORES
from tasks.audits.forgetting.target import Target
from tasks.numerics.statistics import proportion

Row = dict[str, Any]
# Table 1 of the paper: the KS distance of each target there.
TABLE = dict(
    zip((*PUBLISHED, Target(outside=1.0)), (0.049, 0.669, 0.652, 0.596, 0.056, 0.039, 0.029, 0.957), strict=True)
)
DISTANCE = 0.596  # of calibration models
FLOOR = 0.02  # between query models
SURER = 0.5  # one-sided share of the KS distance of a target with higher confidence than query models


def config() -> Forgetting:
    return tiny(Forgetting())


def all_models(targets: int, replicates: int) -> list[tuple[str, int | None, int]]:
    """Role, target and replicate of every model."""
    group: list[tuple[str, int | None]] = [("query", None), ("calibration", None)]
    group += [("target", index) for index in range(targets)]
    models = []
    for role, target in group:
        for replicate in range(replicates):
            models.append((role, target, replicate))
    return models


def model_confidences(knows: float, images: int, seed: int, precise: bool = True) -> NDArray[np.float64]:
    """Confidences of a model: near 1 if `knows` is 1, spread over all values if it is 0."""
    draws = np.random.default_rng(seed)
    logit = draws.normal(-1.5 + 11 * knows, 4.5 - 2 * knows, images) + 6 * (draws.random(images) < 0.3)
    c = 1 / (1 + np.exp(-logit))
    return c.astype(np.float32).astype(np.float64) if precise else np.round(c, 3)


def confidences(targets: int = 8, replicates: int = 3, images: int = 500, printed: bool = False) -> list[pa.Table]:
    """One table for each model, as written by jobs; `printed`: targets have three decimals."""
    shares = [1 - min(ks / DISTANCE, 1.2) for ks in TABLE.values()]
    parts = []
    for index, (role, target, replicate) in enumerate(all_models(targets, replicates)):
        if target is None:
            knows = {"query": 1.0, "calibration": 0.0}.get(role)
        else:
            knows = shares[target % len(shares)]
        precise = not printed or target is None
        column: dict[str, Any] = {"row": np.arange(images), "group": np.arange(images), "label": np.arange(images) % 10}
        column |= {"model": [role] * images, "target": [target] * images, "replicate": [replicate] * images}
        column |= {
            "confidence": model_confidences(knows or 0.0, images, index, precise),
            "resolution": [0.0 if precise else 1e-3] * images,
            "printed": [0.0 if precise else 1e-3] * images,
            "set": ["query"] * images,
            "right": [None] * images,
            "again": [None] * images,
        }
        parts.append(
            pa.table({name: pa.array(column[name], CONFIDENCES.field(name).type) for name in CONFIDENCES.names})
        )
    return parts


def is_surer(target: Target) -> bool:
    return target.query > 0 and target.calibration > 0


def distances(targets: int = 8, replicates: int = 3, images: int = 500, floor: float = FLOOR) -> pa.Table:
    """KS of all pairs, around the paper's values; between query models, one-sided KS is smaller in one order."""
    draws = np.random.default_rng(2)
    rows = []
    middle = list(TABLE.items())
    between: dict[frozenset[int], float] = {}
    for query in range(replicates):
        for role, target, replicate in all_models(targets, replicates):
            if role == "query" and query == replicate:
                continue
            column = None
            ks = floor if role == "query" else DISTANCE
            if target is not None:
                column, ks = middle[target % len(middle)]
            ks = float(np.clip(ks * draws.normal(1, 0.06), 0, 1))
            part = SURER if column is not None and is_surer(column) else 1.0
            if role == "query":  # two-sided KS is the same in both orders
                ks = between.setdefault(frozenset((query, replicate)), ks)
                part = 1.0 if query < replicate else 0.3
            row = {"query": query, "model": role, "target": target, "replicate": replicate, "images": images}
            rows.append(row | {"ks": ks, "below": part * ks})
    return pa.Table.from_pylist(rows, DISTANCES)


def ratios(targets: int = 8, replicates: int = 3, images: int = 500) -> pa.Table:
    """The targets of table 1, repeated if `targets` is larger, each with the paper's rho and an interval.

    One-sided rho is smaller for targets with higher confidence than query models.
    """
    rows = []
    for index, score in itertools.product(range(targets), SCORES):
        target, ks = list(TABLE.items())[index % len(TABLE)]
        ks *= SURER if score == "one-sided" and is_surer(target) else 1.0
        rho = ks / DISTANCE
        second = index // len(TABLE)
        low, high = (0.88 * rho, 1.13 * rho) if replicates > 1 else (None, None)
        row = {"target": index, "name": str(target) + (f", model {second + 1}" if second else ""), "source": "training"}
        row |= {"score": score}
        row |= {"query": target.query, "calibration": target.calibration, "outside": target.outside}
        row |= {"models": replicates, "ks": ks, "rho": rho, "low": low, "high": high}
        row |= {"rule_forgotten": round(replicates * min(1, max(0, rho - 0.5))), "rule_triples": replicates}
        rows.append(row | {"ks_calibration": DISTANCE, "floor": FLOOR if replicates > 1 else None, "images": images})
    return pa.Table.from_pylist(rows, RATIOS)


def decisions(targets: int = 8, replicates: int = 3, images: int = 500) -> pa.Table:
    """The same targets with their correct answers; one is not assessable."""
    rows = []
    for index in range(targets):
        target = list(TABLE)[index % len(TABLE)]
        share = target.query
        if share:
            answer = "not forgotten"
        elif target.outside:
            answer = "not assessable"
        else:
            answer = "forgotten"
        row: Row = dict.fromkeys(DECISIONS.names) | {"target": index, "name": str(target), "source": "training"}
        row |= {"query": share, "calibration": target.calibration, "outside": target.outside, "models": replicates}
        row |= {
            "effect": 12 * share,
            "effect_low": 12 * share - 1,
            "effect_high": 12 * share + 1,
            "p": 0.001 if share else 0.4,
        }
        row |= {"p_adjusted": 0.004 if share else 1.0, "share": share, "share_low": 0.8 * share}
        row |= {"share_high": min(1.0, share + 0.06), "decision": answer, "images": images, "controls": images}
        rows.append(row)
    return pa.Table.from_pylist(rows, DECISIONS)


def changed(table: pa.Table, changes: Mapping[Any, Row], column: str = "target") -> pa.Table:
    """The table with some values replaced in the rows of some targets, or of other values of `column`."""
    rows = [row | changes.get(row[column], {}) for row in table.to_pylist()]
    return pa.Table.from_pylist(rows, table.schema)


UNDEFINED: Row = {"rho": None, "low": None, "high": None, "rule_forgotten": None, "rule_triples": None}
# Third-party models with unknown training data.
GIVEN: Row = {"source": "model", "query": None, "calibration": None, "outside": None}


def power(
    detected: tuple[int, ...] = (1, 2, 9, 17, 20, 20),
    shares: tuple[float, ...] = (0.0, 0.001, 0.01, 0.03, 0.1, 0.5),
    models: int = 20,
) -> pa.Table:
    """`detected` models per share are detected, and the effect rises with the share."""
    rows: list[Row] = []
    for share, result in zip(shares, detected, strict=True):
        rate = proportion(result, models)
        effect = 9 * share**0.5
        row: Row = {"share": share, "models": models, "detected": result, "power": rate.value, "cleared": 0}
        row |= {"power_low": rate.low, "power_high": rate.high, "effect": effect, "low": effect - 1, "high": effect + 1}
        rows.append(row)
    return pa.Table.from_pylist(rows, POWER)


def fits(targets: int = 8, replicates: int = 3) -> pa.Table:
    """All models fit their training data except the first calibration model."""
    draws = np.random.default_rng(4)
    rows: list[Row] = []
    for role, target, replicate in all_models(targets, replicates):
        accuracy = 0.93
        if (role, replicate) != ("calibration", 0):
            accuracy = float(1 - 0.02 * draws.random())
        row: Row = {"model": role, "target": target, "replicate": replicate, "seed": len(rows), "examples": 1000}
        row |= {"epochs": 20, "train_loss": 0.05, "train_accuracy": accuracy, "validation_accuracy": accuracy - 0.05}
        rows.append(row)
    return pa.Table.from_pylist(rows, FITS)


def baselines(targets: int = 8, replicates: int = 3, images: int = 500) -> pa.Table:
    """The targets of table 1, repeated if `targets` is larger: those that know more of D_Q have worse values."""
    rows = []
    for index in range(targets):
        target, ks = list(TABLE.items())[index % len(TABLE)]
        knows = 1 - min(ks / DISTANCE, 1.0)
        row: Row = {"target": index, "name": str(target), "models": replicates, "retrained": replicates}
        row |= {"images": images, "control": images, "quality_null": 0.35, "quality_p": 0.1, "missing": None}
        for name, value in (("u_lira", 0.5 + knows / 2), ("quality", 0.35 - knows / 3), ("privleak", -knows)):
            row |= {name: value, f"{name}_low": value - 0.1, f"{name}_high": value + 0.1}
        rows.append(row | {"u_lira_pairs": replicates, "quality_pairs": replicates})
    return pa.Table.from_pylist(rows, BASELINES)


def tables(targets: int = 8, replicates: int = 3, images: int = 500) -> dict[str, list[pa.Table]]:
    """All tables of a run that has these."""
    return {
        "summary": [],
        "decisions": [decisions(targets, replicates, images)],
        "ratios": [ratios(targets, replicates, images)],
        "confidences": confidences(targets, replicates, images),
        "distances": [distances(targets, replicates, images)],
        "power": [power()],
        "baselines": [baselines(targets, replicates, images)],
        "fits": [fits(targets, replicates)],
    }
