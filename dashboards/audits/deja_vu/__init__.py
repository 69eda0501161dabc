"""Figures of a `deja_vu` run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dashboards.audits.deja_vu.accuracy import accuracy, accuracy_of_given
from dashboards.audits.deja_vu.categories import categories
from dashboards.audits.deja_vu.pictures import pictures
from dashboards.audits.deja_vu.reconstruction import reconstruction
from dashboards.audits.deja_vu.scores import gaps, scores
from dashboards.audits.deja_vu.sweep_cells import compare_cells as sweep
from dashboards.chart import Figure
from dashboards.gallery import Gallery
from dashboards.run import Run
from tasks.audits.deja_vu.config import DejaVu

__all__ = ["figures", "gallery", "sweep"]


def figures(run: Run) -> Iterable[Figure | None]:
    """Return the accuracies first, then the score during training and the categories of individual images."""
    table = run.table("scores")
    if isinstance(run.config, DejaVu):
        config = run.config
    else:
        config = None
    return (
        accuracy_of_given(table),
        accuracy(table, is_null=config is not None and config.is_null),
        scores(table, gaps(run.table("probe")), None if config is None else config.training.epochs),
        categories(run.table("categories")),
    )


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """Show memorised, correlated and most confident images, and both models' reconstructions."""
    return merge_galleries(pictures(run, show_images), reconstruction(run, show_images))


def merge_galleries(first: Gallery | None, second: Gallery | None) -> Gallery | None:
    """Merge both galleries. Items of the first one come first."""
    if first is None or second is None:
        return first or second
    notes = " ".join(filter(None, dict.fromkeys([first.note, second.note])))
    items = (*first.items, *second.items)
    return replace(first, caption=f"{first.caption} {second.caption}", shown=bool(items), note=notes, items=items)
