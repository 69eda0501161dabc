"""The figures of a run: its audit's own, then those drawn from its summary alone."""

from __future__ import annotations

from dashboards import audits, drawing
from dashboards.chart import Figure
from dashboards.estimates import estimates
from dashboards.pareto_front import pareto_front
from dashboards.run import Run
from dashboards.sweep import repetition, sweep


def figures(run: Run) -> list[Figure]:
    """All figures that can be drawn from the results so far; of a sweep or search those of its cells together."""
    drawing.load_matplotlib(lambda: run.store.folder("matplotlib"))
    with drawing.style():
        if run.search is not None:
            return list(pareto_front(run))
        own = audits.find(run.audit)
        if run.cells:
            together = list(own.sweep(run)) if own is not None and hasattr(own, "sweep") else []
            return [*sweep(run), *together, *repetition(run)]
        drawn = list(own.figures(run)) if own is not None and hasattr(own, "figures") else []
        return [*drawn, *estimates(run.summary)]
