"""Synthetic tables of density runs: scores with a known memorised share, and related measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.density.config import Density, KFold, Memorization
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.numerics.statistics import proportion

Row = dict[str, Any]

SCORES = pa.schema(
    [
        ("row", pa.int64()),
        ("label", pa.int32()),
        ("log_p_trained", pa.float64()),
        ("log_p_held_out", pa.float64()),
        ("m", pa.float64()),
        ("m_matched", pa.float64()),
        ("p_value", pa.float64()),
        ("p_adjusted", pa.float64()),
        ("trained_models", pa.int32()),
        ("held_out_models", pa.int32()),
        ("trained", pa.list_(pa.float32())),
        ("held_out", pa.list_(pa.float32())),
        ("effective_samples", pa.float64()),
    ]
)
DISTRIBUTION = pa.schema(
    [
        ("epoch", pa.int32()),
        ("score", pa.string()),
        ("label", pa.int32()),
        ("statistic", pa.string()),
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("n", pa.int64()),
        ("observations", pa.int64()),
        ("null", pa.float64()),
        ("p_value", pa.float64()),
    ]
)
LOSSES = pa.schema(
    [
        ("epoch", pa.int32()),
        ("models", pa.string()),
        ("split", pa.string()),
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("n", pa.int64()),
    ]
)
OUTLIERS = pa.schema(
    [
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("memorised", pa.int64()),
        ("regular", pa.int64()),
        ("share", pa.float64()),
        ("share_low", pa.float64()),
        ("share_high", pa.float64()),
        ("memorised_rows", pa.list_(pa.int64())),
        ("regular_rows", pa.list_(pa.int64())),
    ]
)
RATIOS = pa.schema(
    [
        ("group", pa.string()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("mean", pa.float64()),
        ("standard_error", pa.float64()),
        ("n", pa.int64()),
        ("quantiles", pa.list_(pa.float64())),
    ]
)
DUPLICATES = pa.schema(
    [
        ("rank", pa.int32()),
        ("row", pa.int64()),
        ("other", pa.int64()),
        ("distance", pa.float64()),
        ("label", pa.int32()),
        ("other_label", pa.int32()),
    ]
)
STATISTICS = {
    "median": 0.5,
    "quantile 0.05": 0.05,
    "quantile 0.25": 0.25,
    "quantile 0.75": 0.75,
    "quantile 0.95": 0.95,
    "quantile 0.999": 0.999,
    "lowest": 0.0,
    "highest": 1.0,
}


def embedded(**fields: Any) -> Density:
    """A config whose data are embedded, pinned."""
    data = catalog.pin(Dataset("digits"))
    return Density(replace(Memorization(data, estimator=KFold(3), repetitions=3), **fields))


def values(n: int, spread: float = 3.0, seed: int = 0) -> Row:
    """Columns of n observations: matched scores around 0 with a long upper tail, and published scores 3 higher."""
    draws = np.random.default_rng(seed)
    label = draws.integers(0, 10, n)
    matched = draws.normal(0.15 * label, spread) + draws.exponential(3, n) * (draws.random(n) < 0.3)
    matched += 60 * (draws.random(n) < 1e-3) * draws.random(n)
    u = -90 - 6 * label + draws.normal(0, 14, n) - 0.5 * matched
    p = np.clip(draws.random(n) ** np.where(matched > 6, 8.0, 1.0), 1e-4, 1)
    order = np.argsort(p)
    adjusted = np.empty(n)
    adjusted[order] = np.minimum.accumulate((p[order] * n / np.arange(1, n + 1))[::-1])[::-1]
    m = matched + 3 + draws.normal(0, 0.5, n)
    return {
        "row": np.arange(n),
        "label": label,
        "log_p_trained": u,
        "log_p_held_out": u - m,
        "m": m,
        "m_matched": matched,
        "p_value": p,
        "p_adjusted": np.minimum(adjusted, 1),
    }


def scores(n: int, labelled: bool = True, **fields: Any) -> pa.Table:
    """The scores of n observations, with matrices of two repetitions."""
    columns_of_values = values(n, **fields)
    columns = {}
    for name in columns_of_values:
        columns[name] = pa.array(columns_of_values[name], SCORES.field(name).type)
    if not labelled:
        columns["label"] = pa.nulls(n, pa.int32())
    columns |= {f"{kind}_models": pa.array(np.full(n, 2), pa.int32()) for kind in ("trained", "held_out")}
    for kind in ("trained", "held_out"):
        flat = np.repeat(columns_of_values[f"log_p_{kind}"], 2).astype(np.float32)
        columns[kind] = pa.ListArray.from_arrays(pa.array(np.arange(0, 2 * n + 1, 2), pa.int32()), pa.array(flat))
    columns["effective_samples"] = pa.array(np.full(n, 6.5))
    return pa.table([columns[name] for name in SCORES.names], schema=SCORES)


def distribution(n: int, epochs: tuple[int, ...], repetitions: int = 10, **fields: Any) -> pa.Table:
    """Statistics that grow to the scores' own at the last epoch; the null of published scores is 2.8 nats."""
    columns_of_values = values(n, **fields)
    rows = []
    for epoch in epochs:
        grown = (epoch / epochs[-1]) ** 0.5
        for score, column in (("published", "m"), ("matched", "m_matched")):
            for label in (None, *range(10)):
                if label is None:
                    scores_of_label = columns_of_values[column]
                else:
                    scores_of_label = columns_of_values[column][columns_of_values["label"] == label]
                for statistic, quantile in STATISTICS.items():
                    estimate = grown * float(np.quantile(scores_of_label, quantile))
                    half = 0.1 * abs(estimate) + 0.2
                    row = {"epoch": epoch, "score": score, "label": label, "statistic": statistic, "n": repetitions}
                    row |= {"estimate": estimate, "observations": len(scores_of_label)}
                    row |= {"low": estimate - half, "high": estimate + half} if repetitions > 1 else {}
                    if epoch == epochs[-1] and label is None:
                        row["null"] = 2.8 if score == "published" else 0.0
                    rows.append(row)
    return pa.Table.from_pylist(rows, DISTRIBUTION)


def losses(epochs: int, trainings: int = 100, gap: float = 4.0) -> pa.Table:
    """Both losses of both kinds of models: they fall equally, except for a gap that opens over time."""
    rows = []
    for epoch in range(1, epochs + 1):
        for models, n in (("folds", trainings), ("whole", 1)):
            for split in ("train", "test"):
                estimate = 95 + 110 * float(np.exp(-epoch / 2)) + 12 * float(np.exp(-epoch / 15))
                estimate += gap * epoch / epochs * (split == "test") + 0.8 * (models == "folds")
                row = {"epoch": epoch, "models": models, "split": split, "estimate": estimate, "n": n}
                rows.append(row | ({"low": estimate - 0.3, "high": estimate + 0.3} if n > 1 else {}))
    return pa.Table.from_pylist(rows, LOSSES)


def outliers(n: int, width: float = 10.0, bins: int = 14, **fields: Any) -> pa.Table:
    """The scores in bins of log P with open ends."""
    columns_of_values = values(n, **fields)
    u = columns_of_values["log_p_trained"]
    high = columns_of_values["m"] > np.quantile(columns_of_values["m"], 0.95)
    edges = np.round(np.median(u) / width) * width + width * (np.arange(bins - 1) - (bins - 1) // 2)
    which = np.searchsorted(edges, u, side="right")
    rows = []
    for bin_index in range(bins):
        inside = which == bin_index
        memorised = int((inside & high).sum())
        regular = int((inside & ~high).sum())
        share = proportion(memorised, memorised + regular)
        row = {
            "low": edges[bin_index - 1] if bin_index else None,
            "high": edges[bin_index] if bin_index < bins - 1 else None,
        }
        row |= {"memorised": memorised, "regular": regular, "share": share.value}
        row |= {"share_low": share.low, "share_high": share.high}
        row |= {"memorised_rows": np.flatnonzero(inside & high)[:5], "regular_rows": np.flatnonzero(inside & ~high)[:5]}
        rows.append(row)
    return pa.Table.from_pylist(rows, OUTLIERS)


def ratios(n: int, width: float = 2.0, lift: float = 0.0, **fields: Any) -> pa.Table:
    """Ratios around 0.95, higher by `lift` for highly memorised rows, in bins of the published score."""
    m = values(n, **fields)["m"]
    high = m > np.quantile(m, 0.95)
    ratio = np.random.default_rng(7).normal(0.95, 0.1, n) + lift * high
    rows: list[Row] = []
    which = np.floor(m / width).astype(int)
    for bin_index in range(which.min(), which.max() + 1):
        ratios_of_bin = ratio[which == bin_index]
        if len(ratios_of_bin):
            error = None
            if len(ratios_of_bin) > 1:
                error = float(ratios_of_bin.std(ddof=1) / len(ratios_of_bin) ** 0.5)
            row = {
                "group": "bin",
                "low": bin_index * width,
                "high": (bin_index + 1) * width,
                "mean": ratios_of_bin.mean(),
                "n": len(ratios_of_bin),
            }
            rows.append(row | {"standard_error": error})
    for group, ratios_of_bin in (("memorised", ratio[high]), ("regular", ratio[~high])):
        row = {
            "group": group,
            "mean": ratios_of_bin.mean(),
            "standard_error": ratios_of_bin.std(ddof=1) / len(ratios_of_bin) ** 0.5,
            "n": len(ratios_of_bin),
        }
        rows.append(row | {"quantiles": np.quantile(ratios_of_bin, np.linspace(0, 1, 101)).tolist()})
    return pa.Table.from_pylist(rows, RATIOS)


def duplicates(pairs: int, labelled: bool = True) -> pa.Table:
    """Pairs of rows 2 i and 2 i + 1; the first two pairs are exact copies, every seventh has two labels."""
    rows = []
    for index in range(pairs):
        rows.append(
            {
                "rank": index + 1,
                "row": 2 * index,
                "other": 2 * index + 1,
                "distance": max(0.0, (index - 1) ** 0.4 if index > 1 else 0.0),
            }
            | ({"label": index % 10, "other_label": index % 10 + (index % 7 == 6)} if labelled else {})
        )
    return pa.Table.from_pylist(rows, DUPLICATES)


def kernel() -> pa.Table:
    """Densities of six points with kernels of width 0.5 (0.12: overfitted), and without the point at 4."""
    points = np.array([-1.0, -0.4, 0.0, 0.5, 1.1, 4.0])
    x = np.linspace(-4, 6, 501)

    def density(centres: Any, width: float) -> Any:
        kernels = np.exp(-0.5 * ((x[:, None] - centres) / width) ** 2) / (width * (2 * np.pi) ** 0.5)
        return kernels.mean(axis=1)

    columns = {"with_point": density(points, 0.5), "without_point": density(points[:-1], 0.5)}
    return pa.table({"x": x, **columns, "overfitted": density(points, 0.12)})


def tables(n: int, **fields: Any) -> dict[str, list[pa.Table]]:
    """All tables of a run with n observations, without its models."""
    return {
        "summary": [],
        "scores": [scores(n, **fields)],
        "distribution": [distribution(n, tuple(range(5, 101, 5)), **fields)],
        "losses": [losses(100)],
        "outliers": [outliers(n, **fields)],
        "ratios": [ratios(n, lift=0.06, **fields)],
        "duplicates": [duplicates(60)],
        "kernel": [kernel()],
    }
