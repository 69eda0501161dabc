"""Training and test losses by epoch, as in figure 4a."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.audits.density.observations import Array
from dashboards.columns import integers, numbers, texts
from dashboards.figure import Figure

NEEDED = {"epoch", "models", "split", "estimate", "low", "high", "n"}
MODELS = {"folds": "models with a fold left out", "whole": "model of all data"}
SPLITS = {"test": "canary", "train": "twin"}
SKIPPED = 0.1  # of the epochs, at the start, whose losses need not fit: they would hide what the rest differ by


@dataclass(frozen=True)
class Loss:
    """The loss after each epoch in nats per image, with its interval over `n` trainings; NaN without one."""

    epochs: NDArray[np.int64]
    estimate: Array
    low: Array
    high: Array
    n: int


Losses = dict[tuple[str, str], Loss]  # by models and split


def read_losses(table: pa.Table) -> Losses:
    """The losses by models and split, in the order of the epochs."""
    if not set(table.column_names) >= NEEDED:
        return {}
    models, split, epoch = texts(table, "models"), texts(table, "split"), integers(table, "epoch")
    estimate, low, high = (numbers(table, name) for name in ("estimate", "low", "high"))
    losses = {}
    for models_kind in MODELS:
        for split_kind in SPLITS:
            rows = np.flatnonzero((models == models_kind) & (split == split_kind) & ~np.isnan(estimate))
            rows = rows[np.argsort(epoch[rows], kind="stable")]
            if len(rows):
                n = int(integers(table, "n")[rows].max())
                losses[models_kind, split_kind] = Loss(epoch[rows], estimate[rows], low[rows], high[rows], n)
    return losses


def loss_limits(losses: list[Loss]) -> tuple[float, float]:
    """Limits of the y axis that hold the losses of all but the first epochs, which are far above the rest."""
    last = max(int(loss.epochs[-1]) for loss in losses)
    kept: list[float] = []
    for loss in losses:
        late = loss.epochs > SKIPPED * last
        kept += [float(value) for values in (loss.estimate, loss.low, loss.high) for value in values[late]]
    return drawing.padded_limits([value for value in kept if not np.isnan(value)])


def losses(table: pa.Table) -> Figure | None:
    """Both losses by epoch: the mean of the models with a fold left out, and the model of all data."""
    by_kind = read_losses(table)
    if not by_kind:
        return None
    alt = " ".join(describe_losses(by_kind, models) for models in MODELS if any(name == models for name, _ in by_kind))
    title = "Do the losses show what is memorised?"
    return Figure("losses", title, figure_caption(by_kind), alt, draw_svg(by_kind))


def draw_svg(by_kind: Losses) -> str:
    """The losses as SVG."""
    figure = drawing.canvas(2.2 + 2 * legend.ROW + 0.65)
    axes = layout.wide_axes(figure, 0.5, 2.2)
    for (models, split), loss in by_kind.items():
        look: dict[str, Any] = {"color": drawing.light(SPLITS[split])}
        whole = ~np.isnan(loss.low) & ~np.isnan(loss.high)
        if whole.any():
            axes.fill_between(loss.epochs[whole], loss.low[whole], loss.high[whole], alpha=0.18, linewidth=0, **look)
        alone: dict[str, Any] = {"marker": "o", "markersize": 4} if len(loss.epochs) == 1 else {}
        axes.plot(loss.epochs, loss.estimate, linewidth=1.5, linestyle=dash(models), **look, **alone)
    axes.set_ylim(*loss_limits(list(by_kind.values())))
    axes.set_xlim(*drawing.padded_limits([0.0, float(max(int(loss.epochs[-1]) for loss in by_kind.values()))], 0.03))
    drawing.set_ticks(axes, 6, 5, whole=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss, nats per image")
    short = {"folds": "a fold left out", "whole": "of all data"}
    entries = [
        legend.line(
            f"{split}, {short[models]}", color=drawing.light(SPLITS[split]), linewidth=1.5, linestyle=dash(models)
        )
        for models, split in by_kind
    ]
    legend.add_above(figure, entries)
    return drawing.svg(figure, "losses")


def figure_caption(by_kind: Losses) -> str:
    """The caption of the figure."""
    high = loss_limits(list(by_kind.values()))[1]
    above = max(int(loss.epochs[loss.estimate > high].max(initial=0)) for loss in by_kind.values())
    cut = f" Losses up to epoch {above} lie above what is drawn." if above else ""
    trainings = max((loss.n for (models, _), loss in by_kind.items() if models == "folds"), default=0)
    shade = (
        f" Shade: 95 % t intervals over {trainings} trainings, hidden where narrower than the line."
        if trainings > 1
        else ""
    )
    return (
        "What is minimised (the negative lower bound of log P), in nats per image: of the images trained on as they "
        f"were seen in the epoch, and of the test split after it.{shade} Where the two part, models overfit; memory "
        f"needs no such gap.{cut}"
    )


def dash(models: str) -> Any:
    return "-" if models == "folds" else (0, (4, 2))


def describe_losses(by_kind: Losses, models: str) -> str:
    """The last losses, the gap between them and where the test loss was lowest, in words."""
    splits = {split: by_kind[models, split] for split in SPLITS if (models, split) in by_kind}
    last = {split: float(loss.estimate[-1]) for split, loss in splits.items()}
    n = max(loss.n for loss in splits.values())
    words = f"{MODELS[models].capitalize()}, {n} training{'s'[: n > 1]}, after epoch "
    words += f"{max(int(loss.epochs[-1]) for loss in splits.values())}: "
    words += ", ".join(f"{split} loss {drawing.format_number(value)}" for split, value in last.items())
    if len(last) == 2:
        words += f", gap {drawing.format_number(last['test'] - last['train'])}"
    if "test" in splits:
        test = splits["test"]
        at = int(test.estimate.argmin())
        words += f"; test loss lowest after epoch {test.epochs[at]}, {drawing.format_number(float(test.estimate[at]))}"
    return f"{words}."
