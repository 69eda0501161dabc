"""How memorization falls with epsilon, and the share of features that one model shows beside what epsilon allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards import drawing, layout, legend
from dashboards.audits.unique_feature.effects import EFFECT
from dashboards.chart import Figure
from dashboards.run import Run
from dashboards.summary import Row, find_row, find_rows, finite, format_range
from tasks.audits.unique_feature.measures.private_ranks import ALLOWED, ONE_MODEL, exact_proportion, first_trainings
from tasks.audits.unique_feature.measures.units import share_seeds

PANEL = 1.7  # inches
LEVELS = (0.05, 0.01)  # of the p-value, whose shares are drawn
WIDE = 30.0  # from which ratio of effects on they are drawn on a logarithmic axis
WITHOUT = "none"  # the place of a cell without privacy


@dataclass(frozen=True)
class Share:
    """Of n drawn features the share that one model shows at a level, and the largest that the guarantee allows."""

    estimate: float
    low: float | None
    high: float | None
    n: int
    allowed: float | None = None

    @property
    def description(self) -> str:
        bound = "" if self.allowed is None else f", {drawing.format_number(self.allowed)} allowed"
        return f"{drawing.format_number(self.estimate)}{drawing.format_interval(self.low, self.high)}{bound}"


@dataclass(frozen=True)
class Rung:
    """A cell: its epsilon, None without privacy, the effect on M_w, and the shares by level."""

    epsilon: float | None
    delta: float | None
    effect: Row
    shares: Mapping[float, Share]

    @property
    def name(self) -> str:
        return WITHOUT if self.epsilon is None else f"{self.epsilon:g}"

    @property
    def description(self) -> str:
        effect = (
            f"{drawing.format_number(self.effect['estimate'])}"
            f"{drawing.format_interval(self.effect['low'], self.effect['high'])}"
        )
        shares = "".join(f"; {share.description} at p ≤ {level:g}" for level, share in self.shares.items())
        where = "without privacy" if self.epsilon is None else f"epsilon {self.name}"
        return f"{where}: effect {effect}{shares}."


def ladder(run: Run) -> Iterator[Figure]:
    """The effect and the shares by epsilon, of a sweep whose cells differ in privacy."""
    found = [rung for rung in map(read_rung, run.cells) if rung is not None]
    epsilons = {rung.epsilon for rung in found}
    if len(epsilons) < 2 or len(epsilons) < len(found):
        return
    rungs = sorted(found, key=lambda rung: (rung.epsilon is None, rung.epsilon))
    levels = [level for level in LEVELS if any(level in rung.shares for rung in rungs)]
    deltas = sorted({rung.delta for rung in rungs if rung.delta is not None})
    counts = [share.n for rung in rungs for share in rung.shares.values()]
    n = f" n: {format_range(counts)} drawn features of each." if counts else ""
    shares = (
        " Below, the share of drawn features whose rank by one model (the score references) has a p-value of at most "
        "the level, with its exact interval, beside the largest share that the guarantee of one model allows (delta "
        f"{', '.join(f'{delta:g}' for delta in deltas)}): a whole interval above it would break the guarantee."
        if levels
        else ""
    )
    of_all = "" if len(rungs) == len(run.cells) else f" {len(rungs)} of {len(run.cells)} cells are there yet."
    yield Figure(
        "ladder",
        "How much less is memorised as epsilon falls?",
        "Values stand evenly apart; none: trained without privacy. Above, the effect of the canaries on M_w, which "
        "compares twins that share their noise: no epsilon bounds it."
        f"{shares} Lines: 95 % intervals, hidden where narrower than their mark. Dashed: where nothing is memorised."
        f"{n}{of_all}",
        " ".join(rung.description[:1].upper() + rung.description[1:] for rung in rungs),
        draw_svg(rungs, levels),
    )


def read_rung(cell: Run) -> Rung | None:
    """A cell's rung; None as long as it has no effect, or where its config is of another version."""
    effect = find_row(cell.summary, EFFECT, images="probe")
    if cell.config is None or effect is None or not finite(effect["estimate"]):
        return None
    privacy = cell.config.privacy
    if privacy is None:
        return Rung(None, None, effect, non_private_shares(cell))
    return Rung(privacy.epsilon, privacy.delta, effect, bounded_shares(cell.summary))


def bounded_shares(summary: Sequence[Row]) -> dict[float, Share]:
    """The shares of a cell with privacy by level, from its summary."""
    by_level = {
        name: {setting["level"]: row for setting, row in find_rows(summary, name)} for name in (ONE_MODEL, ALLOWED)
    }
    return {
        level: Share(row["estimate"], row["low"], row["high"], row["n"], by_level[ALLOWED][level]["estimate"])
        for level, row in by_level[ONE_MODEL].items()
        if level in LEVELS and level in by_level[ALLOWED]
    }


def non_private_shares(cell: Run) -> dict[float, Share]:
    """The same of a cell without privacy, from its exact ranks: of nothing it is promised how small they are."""
    table = cell.table("exact_ranks")
    if "score" not in table.schema.names:
        return {}
    asked = [
        row for row in table.to_pylist() if (row["score"], row["feature"]) == ("references", "canary") and row["drawn"]
    ]
    ranked = first_trainings(asked)
    shared = share_seeds((row["canary"], row["seed"]) for row in asked)
    found = {}
    for level in LEVELS:
        if ranked and all(row["among"] * level >= 1 for row in ranked):
            called = sum(row["p_value"] <= level for row in ranked)
            share = exact_proportion(called, len(ranked))
            ends = (None, None) if shared else (share.low, share.high)
            found[level] = Share(called / len(ranked), *ends, len(ranked))
    return found


def draw_svg(rungs: Sequence[Rung], levels: Sequence[float]) -> str:
    """The panels as SVG: the effect, then the shares at each level."""
    entries = [("measured", "accent", "o", 1.6), ("largest that (epsilon, delta) allows", "violet", "", 2.2)]
    entries = entries[: 1 + bool(levels)]
    figure = drawing.canvas(PANEL * (1 + len(levels)) + 0.35 + legend.height(len(entries), 1))
    top, *below = layout.stack_axes(figure, 1 + len(levels), PANEL, gap=0.45, foot=0.55)
    effects = [(rung.effect["estimate"], rung.effect["low"], rung.effect["high"]) for rung in rungs]
    draw_estimates(top, effects)
    lowest = [low if finite(low) else value for value, low, _ in effects]
    if min(lowest) > 0 and max(value for value, *_ in effects) > WIDE * min(value for value, *_ in effects):
        drawing.set_log_y_axis(top, wide=True)
        top.set_title("effect on M_w, probe images, nats, logarithmic", fontsize=drawing.TEXT)
    else:
        drawing.set_ticks(top, up=4)
        top.axhline(0, **drawing.NULL)
        top.set_title("effect on M_w, probe images, nats", fontsize=drawing.TEXT)
    for axes, level in zip(below, levels, strict=True):
        shares = [rung.shares.get(level) for rung in rungs]
        bounds = [(at, share.allowed) for at, share in enumerate(shares) if share and share.allowed is not None]
        for at, allowed in bounds:
            axes.plot([at - 0.3, at + 0.3], [allowed, allowed], color=drawing.light("violet"), linewidth=2.2)
        draw_estimates(axes, [None if share is None else (share.estimate, share.low, share.high) for share in shares])
        axes.axhline(level, **drawing.NULL)
        drawing.set_ticks(axes, up=3)
        axes.set_ylim(-0.05, 1.05)
        axes.set_title(f"share of features that one model shows at p ≤ {level:g}", fontsize=drawing.TEXT)
    for axes in (top, *below):
        axes.set_xlim(-0.5, len(rungs) - 0.5)
        last = axes is (top, *below)[-1]
        axes.set_xticks(range(len(rungs)), [rung.name if last else "" for rung in rungs])
        axes.grid(axis="x", visible=False)
    (top, *below)[-1].set_xlabel("epsilon")
    handles = [
        legend.line(label, color=drawing.light(colour), marker=marker, linewidth=width)
        for label, colour, marker, width in entries
    ]
    legend.add_above(figure, handles, 1)
    return drawing.svg(figure, "ladder")


def draw_estimates(axes: Any, values: Sequence[tuple[float, float | None, float | None] | None]) -> None:
    """An estimate at each place with its interval, where there is one."""
    look = {"color": drawing.light("accent")}
    there = [(at, value) for at, value in enumerate(values) if value is not None]
    axes.plot([at for at, _ in there], [value for _, (value, _, _) in there], "o", markersize=6, **look)
    for at, (_, low, high) in there:
        if finite(low) and finite(high):
            axes.plot([at, at], [low, high], linewidth=1.8, solid_capstyle="butt", **look)
