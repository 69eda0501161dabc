"""Accuracy of label inference over the share of most confident pictures, by both models: figure 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacked
from dashboards.audits.deja_vu.courses import (
    NAMES,
    NULL,
    REFERENCE,
    TARGET,
    Course,
    course,
    draw,
    percent_of,
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

    of_model: dict[str, Course]
    title: str = ""

    def in_words(self, percent: int) -> str:
        """Both accuracies at this percentage, in words."""
        words = []
        for name, shown in self.of_model.items():
            at = int(np.abs(shown.places - percent).argmin())
            words.append(f"{NAMES[name]} {shown.in_words(at)}")
        return f"{', '.join(words)} of the most confident {percent} %"


def accuracy(table: pa.Table, trained: str = "own") -> Figure | None:
    """Both models' accuracies for the attack that decides, and smaller for those that differ from it in one thing.

    `trained` is that of the config.
    """
    table = attacked.both_ways(table)
    found = attacked.attacks(table)
    last = accuracies(table, attacked.decisive(found)) if found else None
    if last is None:
        return None
    percent = percent_of(table)
    others = [each for attack in attacked.beside(found) if (each := beside(table, attack, attacked.decisive(found)))]
    shown = some(others)
    told = list(dict.fromkeys((percent, *TOLD)))
    alt = " ".join(
        [f"Named rightly after {attacked.decisive(found).in_words()}: {last.in_words(each)}." for each in told]
        + [f"{each.title}: {each.in_words(percent)}." for each in others]
    )
    n = int(integers(attacked.of(table, attacked.decisive(found)), "pictures").max())
    caption = (
        "Neighbours of a picture's background vote for the object that was before it. The share they name rightly "
        "among the pictures on which they agree most, both ways averaged, by the model that was trained on the picture "
        "and by one that was not; each has its own most confident pictures. The distance of the two is the deja vu "
        f"score, 0 where nothing is memorised; upright: at {percent} %, where it decides. Bands: 95 % intervals over "
        f"pictures, n {n:,} in all, after {attacked.decisive(found).in_words()}."
        f"{' Below, the same with one thing changed.' if shown else ''}"
        f"{f' {len(shown)} of {len(others)} such are drawn.' if len(shown) < len(others) else ''}"
        f"{NULL if trained == 'other' else ''}"
    )
    title = "How often do the neighbours of a background name its object?"
    return Figure("accuracy", title, caption, alt, drawn(last, shown, percent))


def some(others: Sequence[Accuracies]) -> list[Accuracies]:
    """At most MOST of them, evenly chosen."""
    places = np.linspace(0, len(others) - 1, min(MOST, len(others))).round().astype(np.int64)
    return [others[at] for at in places.tolist()]


def accuracies(table: pa.Table, attack: attacked.Attack, title: str = "") -> Accuracies | None:
    """Both models' accuracies for this attack; None where there are none."""
    rows = attacked.of(table, attack)
    found = {name: shown for name in NAMES if (shown := course(rows, "percent", name)) is not None}
    return Accuracies(found, title) if found else None


def beside(table: pa.Table, attack: attacked.Attack, last: attacked.Attack) -> Accuracies | None:
    """The accuracies of an attack that is named by what it does not share with the decisive one."""
    differing = [name for name in attack._fields if getattr(attack, name) != getattr(last, name)]
    return accuracies(table, attack, ", ".join(f"{name} {getattr(attack, name)}" for name in differing))


def drawn(last: Accuracies, others: Sequence[Accuracies], percent: int) -> str:
    """The accuracies as SVG: the decisive ones large, the others below."""
    below = small_height(len(others))
    figure = drawing.canvas(HIGH + 0.65 + legend.ROW + below)
    axes = layout.wide(figure, below + 0.55, HIGH)
    panel(axes, last, percent)
    drawing.ticks(axes, 6, 6)
    axes.set_xlabel("most confident pictures, %")
    axes.set_ylabel("named rightly, share")
    small(figure, others, percent, (0.0, max(highest([last, *others]), 0.01)))
    legend.above(figure, entries())
    return drawing.svg(figure, "accuracy")


def small_height(count: int) -> float:
    """Inches that so many small panels take."""
    return (SMALL + APART) * -(-count // ACROSS) + (0.1 if count else 0.0)


def small(figure: Any, shown: Sequence[Accuracies], percent: int, limits: tuple[float, float]) -> None:
    """Small panels from the top down at the foot of the figure, all on one scale."""
    room = drawing.WIDTH - layout.LEFT - layout.RIGHT
    wide = (room - 0.3 * (ACROSS - 1)) / ACROSS
    rows = -(-len(shown) // ACROSS)
    for at, each in enumerate(shown):
        row, column = divmod(at, ACROSS)
        left, foot = layout.LEFT + column * (wide + 0.3), 0.3 + (SMALL + APART) * (rows - 1 - row)
        axes = drawing.place(figure, left, foot, wide, SMALL)
        panel(axes, each, percent)
        axes.set_ylim(*drawing.span(limits))
        drawing.ticks(axes, 3, 3)
        axes.set_title(each.title, fontsize=drawing.TEXT - 1)
        if column:
            axes.tick_params(labelleft=False)


def panel(axes: Any, shown: Accuracies, percent: int) -> None:
    """Both models' lines with their bands, and the decisive percentage upright."""
    axes.axvline(percent, color=drawing.light("muted"), linewidth=0.9)
    for name, each in reversed(shown.of_model.items()):
        draw(axes, each, LOOKS[name])
    axes.set_xlim(0, 101)
    axes.set_ylim(*drawing.span([0.0, highest([shown])]))


def highest(shown: Sequence[Accuracies]) -> float:
    """The highest accuracy with its interval."""
    ends = [
        values for each in shown for of_model in each.of_model.values() for values in (of_model.value, of_model.high)
    ]
    return float(np.nanmax(np.concatenate(ends)))


def entries() -> list[Any]:
    """The legend's entries of the two models."""
    return [
        legend.line(f"model {label}", color=drawing.light(LOOKS[name][0]), linestyle=LOOKS[name][2], linewidth=1.5)
        for name, label in NAMES.items()
    ]
