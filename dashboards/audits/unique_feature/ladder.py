"""Memorisation by epsilon, and the share of features found by a single model, compared with the allowed share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from dashboards import drawing, legend
from dashboards.audits.unique_feature.effects import EFFECT
from dashboards.chart import Axis, Chart, Facet, Figure, Layer, Panel, estimate_marks, facet_panels, level, line
from dashboards.run import Run
from dashboards.summary import Row, find_row, find_rows, finite, format_range
from tasks.audits.unique_feature.pairs.private_ranks import ALLOWED, ONE_MODEL
from tasks.audits.unique_feature.pairs.units import first_trainings, share_seeds
from tasks.numerics.statistics import exact_proportion

PANEL = 1.7  # inches
LEVELS = (0.05, 0.01)  # levels of the p-value for which shares are drawn
WIDE = 30.0  # ratio of effects above which the axis is logarithmic
DOT: Mapping[str, Any] = {"marker": "o", "markersize": 6, "linestyle": "none"}
WITHOUT = "none"  # label of a cell without privacy


@dataclass(frozen=True)
class Share:
    """The share of n random features that one model reveals at a level, and the largest share allowed."""

    estimate: float
    low: float | None
    high: float | None
    n: int
    allowed: float | None = None

    @property
    def description(self) -> str:
        if self.allowed is None:
            bound = ""
        else:
            bound = f", {drawing.format_number(self.allowed)} allowed"
        return f"{drawing.format_number(self.estimate)}{drawing.format_interval(self.low, self.high)}{bound}"


@dataclass(frozen=True)
class Rung:
    """One cell: its epsilon (None without privacy), the effect on M_w, and the shares by level."""

    epsilon: float | None
    delta: float | None
    effect: Row
    shares: Mapping[float, Share]

    @property
    def name(self) -> str:
        if self.epsilon is None:
            return WITHOUT
        return f"{self.epsilon:g}"

    @property
    def description(self) -> str:
        effect = (
            f"{drawing.format_number(self.effect['estimate'])}"
            f"{drawing.format_interval(self.effect['low'], self.effect['high'])}"
        )
        shares = "".join(f"; {share.description} at p ≤ {level:g}" for level, share in self.shares.items())
        if self.epsilon is None:
            where = "without privacy"
        else:
            where = f"epsilon {self.name}"
        return f"{where}: effect {effect}{shares}."


def ladder(run: Run) -> Iterator[Figure]:
    """Yield the effect and the shares by epsilon, for a sweep whose cells differ in privacy."""
    rungs_found = [rung for rung in map(read_rung, run.cells) if rung is not None]
    epsilons = {rung.epsilon for rung in rungs_found}
    if len(epsilons) < 2 or len(epsilons) < len(rungs_found):
        return
    rungs = sorted(rungs_found, key=lambda rung: (rung.epsilon is None, rung.epsilon))
    existing_levels = {level for rung in rungs for level in rung.shares}
    levels = [level for level in LEVELS if level in existing_levels]
    deltas = sorted({rung.delta for rung in rungs if rung.delta is not None})
    counts = [share.n for rung in rungs for share in rung.shares.values()]
    n = ""
    if counts:
        n = f" n: {format_range(counts)} drawn features each."
    shares = ""
    if levels:
        shares = (
            " Below: share of drawn features whose rank by one model (score references) has a p-value of at most the "
            "level, with its exact interval, and the largest share that the guarantee allows (delta "
            f"{', '.join(f'{delta:g}' for delta in deltas)}). An interval entirely above it would break the guarantee."
        )
    if len(rungs) == len(run.cells):
        of_all = ""
    else:
        of_all = f" {len(rungs)} of {len(run.cells)} cells are available."
    panels = _ladder_panels(rungs, levels)
    entries = [legend.line("measured", color=drawing.light("accent"), marker="o", linewidth=1.6)]
    if levels:
        allowed = "largest share that (epsilon, delta) allows"
        entries.append(legend.line(allowed, color=drawing.light("violet"), linewidth=2.2))
    yield Chart(
        "ladder",
        "How does memorisation fall with epsilon?",
        "The horizontal axis is not to scale; none: trained without privacy. Above: effect of the canaries on M_w, "
        "which compares models that share their noise, so no epsilon bounds it."
        f"{shares} Lines: 95 % intervals, hidden if narrower than their mark. Dashed: nothing memorised."
        f"{n}{of_all}",
        " ".join(rung.description[:1].upper() + rung.description[1:] for rung in rungs),
        PANEL * len(panels) + 0.35 + legend.height(len(entries), 1),
        panels,
        entries,
        columns=1,
    ).figure()


def read_rung(cell: Run) -> Rung | None:
    """Read a cell. Returns None if it has no effect yet, or if its configuration is from another version."""
    effect = find_row(cell.summary, EFFECT, images="probe")
    if cell.config is None or effect is None or not finite(effect["estimate"]):
        return None
    privacy = cell.config.privacy
    if privacy is None:
        return Rung(None, None, effect, _non_private_shares(cell))
    return Rung(privacy.epsilon, privacy.delta, effect, _bounded_shares(cell.summary))


def _bounded_shares(summary: Sequence[Row]) -> dict[float, Share]:
    """Return the shares of a private cell by level, from its summary."""
    by_level = {}
    for name in (ONE_MODEL, ALLOWED):
        by_level[name] = {setting["level"]: row for setting, row in find_rows(summary, name)}
    return {
        level: Share(row["estimate"], row["low"], row["high"], row["n"], by_level[ALLOWED][level]["estimate"])
        for level, row in by_level[ONE_MODEL].items()
        if level in LEVELS and level in by_level[ALLOWED]
    }


def _non_private_shares(cell: Run) -> dict[float, Share]:
    """Return the shares of a cell without privacy by level, from its exact ranks."""
    table = cell.table("exact_ranks")
    if "score" not in table.schema.names:
        return {}
    reference_rows = []
    for row in table.to_pylist():
        if (row["score"], row["feature"]) == ("references", "canary") and row["drawn"]:
            reference_rows.append(row)
    ranked = first_trainings(reference_rows)
    shared = share_seeds((row["canary"], row["seed"]) for row in reference_rows)
    shares = {}
    for alpha in LEVELS:
        if ranked and all(row["among"] * alpha >= 1 for row in ranked):
            called_count = sum(row["p_value"] <= alpha for row in ranked)
            share = exact_proportion(called_count, len(ranked))
            ends = (None, None) if shared else (share.low, share.high)
            shares[alpha] = Share(called_count / len(ranked), *ends, len(ranked))
    return shares


def _ladder_panels(rungs: Sequence[Rung], levels: Sequence[float]) -> list[Panel]:
    """Return panels with the effect, then the shares at each level, by epsilon."""
    ticks = (range(len(rungs)), [rung.name for rung in rungs])
    across = Axis("epsilon", (-0.5, len(rungs) - 0.5), ticks=ticks, has_grid=False)
    facets = [effect_facet(rungs)]
    for share_level in levels:
        shares = {
            position: share
            for position, rung in enumerate(rungs)
            if (share := rung.shares.get(share_level)) is not None
        }
        bounds: list[Layer] = [
            line([position - 0.3, position + 0.3], [share.allowed] * 2, "violet", linewidth=2.2)
            for position, share in shares.items()
            if share.allowed is not None
        ]
        measured = estimate_marks(list(shares), [asdict(share) for share in shares.values()], "accent", **DOT)
        title = f"share of features found by one model at p ≤ {share_level:g}"
        facets.append(Facet([*bounds, measured, level(share_level)], title, Axis(limits=(-0.05, 1.05), max_ticks=3)))
    return facet_panels(facets, PANEL, across, gap=0.45, foot=0.55)


def effect_facet(rungs: Sequence[Rung]) -> Facet:
    """Return the effect by epsilon. If sizes differ widely, the axis is logarithmic and has no line at 0."""
    effects = [rung.effect for rung in rungs]
    sizes = [row["estimate"] for row in effects]
    lowest = min(row["low"] if finite(row["low"]) else row["estimate"] for row in effects)
    wide = lowest > 0 and max(sizes) > WIDE * min(sizes)
    title = f"effect on M_w, probe images, nats{', logarithmic' if wide else ''}"
    dots = estimate_marks(range(len(rungs)), effects, "accent", **DOT)
    if wide:
        set_log_axis = partial(drawing.set_log_y_axis, wide=True)
        return Facet([dots], title, Axis(max_ticks=None), finish=[set_log_axis])
    return Facet([dots, level(0)], title)
