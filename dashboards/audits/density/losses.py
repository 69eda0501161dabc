"""How the models were trained: their losses on what they were trained on and on the test split: figure 4a."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.audits.density import style
from dashboards.audits.density.observed import Array
from dashboards.columns import integers, numbers, texts
from dashboards.figure import Figure

NEEDED = {"epoch", "models", "split", "estimate", "low", "high", "n"}
MODELS = {"folds": "models with a fold left out", "whole": "model of all data"}
SPLITS = {"test": "canary", "train": "twin"}
SKIPPED = 0.1  # of the epochs, at the start, whose losses need not fit: they would hide what the rest differ by


@dataclass(frozen=True)
class Loss:
    """A loss after each epoch, in nats an image, with its interval over so many trainings (NaN: none)."""

    epochs: NDArray[np.int64]
    estimate: Array
    low: Array
    high: Array
    n: int


def read(table: pa.Table) -> dict[tuple[str, str], Loss]:
    """(models, split) -> its losses, in the order of the epochs."""
    if not set(table.column_names) >= NEEDED:
        return {}
    models, split, epoch = texts(table, "models"), texts(table, "split"), integers(table, "epoch")
    estimate, low, high = (numbers(table, name) for name in ("estimate", "low", "high"))
    found = {}
    for which in MODELS:
        for of in SPLITS:
            rows = np.flatnonzero((models == which) & (split == of) & ~np.isnan(estimate))
            rows = rows[np.argsort(epoch[rows], kind="stable")]
            if len(rows):
                n = int(integers(table, "n")[rows].max())
                found[which, of] = Loss(epoch[rows], estimate[rows], low[rows], high[rows], n)
    return found


def limits(found: list[Loss]) -> tuple[float, float]:
    """Of the axis upwards: all losses but those of the first epochs, which are far above the rest."""
    last = max(int(each.epochs[-1]) for each in found)
    kept: list[float] = []
    for each in found:
        late = each.epochs > SKIPPED * last
        kept += [float(value) for values in (each.estimate, each.low, each.high) for value in values[late]]
    return drawing.span([value for value in kept if not np.isnan(value)])


def losses(table: pa.Table) -> Figure | None:
    """Both losses by epoch: the mean of the models with a fold left out, and the model of all data."""
    found = read(table)
    if not found:
        return None
    figure = drawing.canvas(2.2 + 2 * style.ROW + 0.65)
    axes = drawing.place(figure, style.LEFT, 0.5, drawing.WIDTH - style.LEFT - style.RIGHT, 2.2)
    for (models, split), each in found.items():
        look: dict[str, Any] = {"color": drawing.light(SPLITS[split])}
        whole = ~np.isnan(each.low) & ~np.isnan(each.high)
        if whole.any():
            axes.fill_between(each.epochs[whole], each.low[whole], each.high[whole], alpha=0.18, linewidth=0, **look)
        alone: dict[str, Any] = {"marker": "o", "markersize": 4} if len(each.epochs) == 1 else {}
        axes.plot(each.epochs, each.estimate, linewidth=1.5, linestyle=dash(models), **look, **alone)
    last = max(int(each.epochs[-1]) for each in found.values())
    low, high = limits(list(found.values()))
    axes.set_ylim(low, high)
    axes.set_xlim(*drawing.span([0.0, float(last)], 0.03))
    drawing.ticks(axes, 6, 5, whole=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss, nats per image")
    style.legend(figure, key(found))
    above = max(int(each.epochs[each.estimate > high].max(initial=0)) for each in found.values())
    cut = f" Losses up to epoch {above} lie above what is drawn." if above else ""
    trainings = max((each.n for (models, _), each in found.items() if models == "folds"), default=0)
    shade = (
        f" Shade: 95 % t intervals over {trainings} trainings, hidden where narrower than the line."
        if trainings > 1
        else ""
    )
    caption = (
        "What is minimised (the negative lower bound of log P), in nats per image: of the images trained on as they "
        f"were seen in the epoch, and of the test split after it.{shade} Where the two part, models overfit; memory "
        f"needs no such gap.{cut}"
    )
    alt = " ".join(said(found, models) for models in MODELS if any(name == models for name, _ in found))
    title = "Do the losses show what is memorised?"
    return Figure("losses", title, caption, alt, drawing.svg(figure, "losses"))


def dash(models: str) -> Any:
    return "-" if models == "folds" else (0, (4, 2))


def key(found: dict[tuple[str, str], Loss]) -> list[Any]:
    short = {"folds": "a fold left out", "whole": "of all data"}
    return [
        style.of_line(
            f"{split}, {short[models]}", color=drawing.light(SPLITS[split]), linewidth=1.5, linestyle=dash(models)
        )
        for models, split in found
    ]


def said(found: dict[tuple[str, str], Loss], models: str) -> str:
    """The last losses, the gap between them and where the test loss was lowest, in words."""
    splits = {split: found[models, split] for split in SPLITS if (models, split) in found}
    last = {split: float(each.estimate[-1]) for split, each in splits.items()}
    n = max(each.n for each in splits.values())
    words = f"{MODELS[models].capitalize()}, {n} training{'s'[: n > 1]}, after epoch "
    words += f"{max(int(each.epochs[-1]) for each in splits.values())}: "
    words += ", ".join(f"{split} loss {drawing.number(value)}" for split, value in last.items())
    if len(last) == 2:
        words += f", gap {drawing.number(last['test'] - last['train'])}"
    if "test" in splits:
        test = splits["test"]
        at = int(test.estimate.argmin())
        words += f"; test loss lowest after epoch {test.epochs[at]}, {drawing.number(float(test.estimate[at]))}"
    return f"{words}."
