"""The figures of a run: its audit's own, then those drawn from its summary alone."""

from __future__ import annotations

from dashboards import audits, drawing
from dashboards.estimates import estimates
from dashboards.figure import Figure
from dashboards.repetition import repetition
from dashboards.run import Run
from dashboards.sweep import sweep


def figures(run: Run) -> list[Figure]:
    """All figures that can be drawn from the results so far. A sweep's show its cells together."""
    drawing.load(lambda: run.store.folder("matplotlib"))
    with drawing.style():
        own = audits.find(run.audit)
        if run.cells:
            together = list(own.sweep(run)) if own is not None and hasattr(own, "sweep") else []
            return [*sweep(run), *together, *repetition(run)]
        drawn = list(own.figures(run)) if own is not None and hasattr(own, "figures") else []
        return [*drawn, *estimates(run.summary)]
