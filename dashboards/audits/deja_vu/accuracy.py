"""Accuracy of label inference over the share of most confident pictures, by both models: figure 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.curves import (
    NAMES,
    NULL,
    REFERENCE,
    TARGET,
    Curve,
    decisive_percent,
    draw_curve,
    read_curve,
)
from dashboards.columns import integers
from dashboards.figure import Figure

LOOKS = {"target_accuracy": TARGET, "reference_accuracy": REFERENCE}
TOLD = (1, 100)  # percentages that are told beside the decisive one
HIGH = 2.2  # inches, of the panel of the decisive attack
SMALL, ACROSS, APART = 1.05, 3, 0.55  # inches of a small panel, how many stand beside one another, and inches between
MOST = 9  # small panels


@dataclass(frozen=True)
class Accuracies:
    """The accuracy of both models by percentage; each in the order of NAMES."""

    of_model: dict[str, Curve]
    title: str = ""

    def describe(self, percent: int) -> str:
        """Both accuracies at this percentage, in words."""
        words = []
        for name, shown in self.of_model.items():
            at = int(np.abs(shown.places - percent).argmin())
            words.append(f"{NAMES[name]} {shown.describe(at)}")
        return f"{', '.join(words)} of the most confident {percent} %"


def accuracy(table: pa.Table, trained: str = "own") -> Figure | None:
    """Both models' accuracies for the attack that decides, and smaller for those that differ from it in one thing.

    `trained` is that of the config.
    """
    table = attacks.both_ways_rows(table)
    found = attacks.read_attacks(table)
    last = accuracies(table, attacks.decisive_attack(found)) if found else None
    if last is None:
        return None
    percent = decisive_percent(table)
    others = [
        each
        for attack in attacks.neighbouring_attacks(found)
        if (each := variant_accuracies(table, attack, attacks.decisive_attack(found)))
    ]
    shown = sample_evenly(others)
    told = list(dict.fromkeys((percent, *TOLD)))
    alt = " ".join(
        [f"Named rightly after {attacks.decisive_attack(found).describe()}: {last.describe(each)}." for each in told]
        + [f"{each.title}: {each.describe(percent)}." for each in others]
    )
    n = int(integers(attacks.attack_rows(table, attacks.decisive_attack(found)), "pictures").max())
    caption = (
        "Neighbours of a picture's background vote for the object that was before it. The share they name rightly "
        "among the pictures on which they agree most, both ways averaged, by the model that was trained on the picture "
        "and by one that was not; each has its own most confident pictures. The distance of the two is the deja vu "
        f"score, 0 where nothing is memorised; upright: at {percent} %, where it decides. Bands: 95 % intervals over "
        f"pictures, n {n:,} in all, after {attacks.decisive_attack(found).describe()}."
        f"{' Below, the same with one thing changed.' if shown else ''}"
        f"{f' {len(shown)} of {len(others)} such are drawn.' if len(shown) < len(others) else ''}"
        f"{NULL if trained == 'other' else ''}"
    )
    title = "How often do the neighbours of a background name its object?"
    return Figure("accuracy", title, caption, alt, draw_svg(last, shown, percent))


def sample_evenly(others: Sequence[Accuracies]) -> list[Accuracies]:
    """At most MOST of them, evenly chosen."""
    places = np.linspace(0, len(others) - 1, min(MOST, len(others))).round().astype(np.int64)
    return [others[at] for at in places.tolist()]


def accuracies(table: pa.Table, attack: attacks.Attack, title: str = "") -> Accuracies | None:
    """Both models' accuracies for this attack; None where there are none."""
    rows = attacks.attack_rows(table, attack)
    found = {name: shown for name in NAMES if (shown := read_curve(rows, "percent", name)) is not None}
    return Accuracies(found, title) if found else None


def variant_accuracies(table: pa.Table, attack: attacks.Attack, last: attacks.Attack) -> Accuracies | None:
    """The accuracies of an attack that is named by what it does not share with the decisive one."""
    differing = [name for name in attack._fields if getattr(attack, name) != getattr(last, name)]
    return accuracies(table, attack, ", ".join(f"{name} {getattr(attack, name)}" for name in differing))


def draw_svg(last: Accuracies, others: Sequence[Accuracies], percent: int) -> str:
    """The accuracies as SVG: the decisive ones large, the others below."""
    below = small_panels_height(len(others))
    figure = drawing.canvas(HIGH + 0.65 + legend.ROW + below)
    axes = layout.wide_axes(figure, below + 0.55, HIGH)
    draw_panel(axes, last, percent)
    drawing.set_ticks(axes, 6, 6)
    axes.set_xlabel("most confident pictures, %")
    axes.set_ylabel("named rightly, share")
    draw_small_panels(figure, others, percent, (0.0, max(highest_accuracy([last, *others]), 0.01)))
    legend.add_above(figure, legend_entries())
    return drawing.svg(figure, "accuracy")


def small_panels_height(count: int) -> float:
    """Inches that so many small panels take."""
    return (SMALL + APART) * -(-count // ACROSS) + (0.1 if count else 0.0)


def draw_small_panels(figure: Any, shown: Sequence[Accuracies], percent: int, limits: tuple[float, float]) -> None:
    """Small panels from the top down at the foot of the figure, all on one scale."""
    room = drawing.WIDTH - layout.LEFT - layout.RIGHT
    wide = (room - 0.3 * (ACROSS - 1)) / ACROSS
    rows = -(-len(shown) // ACROSS)
    for at, each in enumerate(shown):
        row, column = divmod(at, ACROSS)
        left, foot = layout.LEFT + column * (wide + 0.3), 0.3 + (SMALL + APART) * (rows - 1 - row)
        axes = drawing.add_axes(figure, left, foot, wide, SMALL)
        draw_panel(axes, each, percent)
        axes.set_ylim(*drawing.padded_limits(limits))
        drawing.set_ticks(axes, 3, 3)
        axes.set_title(each.title, fontsize=drawing.TEXT - 1)
        if column:
            axes.tick_params(labelleft=False)


def draw_panel(axes: Any, shown: Accuracies, percent: int) -> None:
    """Both models' lines with their bands, and the decisive percentage upright."""
    axes.axvline(percent, color=drawing.light("muted"), linewidth=0.9)
    for name, each in reversed(shown.of_model.items()):
        draw_curve(axes, each, LOOKS[name])
    axes.set_xlim(0, 101)
    axes.set_ylim(*drawing.padded_limits([0.0, highest_accuracy([shown])]))


def highest_accuracy(shown: Sequence[Accuracies]) -> float:
    """The highest accuracy with its interval."""
    ends = [
        values for each in shown for of_model in each.of_model.values() for values in (of_model.value, of_model.high)
    ]
    return float(np.nanmax(np.concatenate(ends)))


def legend_entries() -> list[Any]:
    """The legend's entries of the two models."""
    return [
        legend.line(f"model {label}", color=drawing.light(LOOKS[name][0]), linestyle=LOOKS[name][2], linewidth=1.5)
        for name, label in NAMES.items()
    ]
