"""All figures of a run: first those specific to its audit, then those drawn from its summary alone."""

from __future__ import annotations

from types import ModuleType

from dashboards import audits, drawing
from dashboards.chart import Figure
from dashboards.epsilon_bounds import epsilon_bounds
from dashboards.estimates import estimates
from dashboards.pareto_front import pareto_front
from dashboards.run import Run
from dashboards.sweep import repetition, sweep


def figures(run: Run) -> list[Figure]:
    """Draw all figures that the current results allow. For a sweep or search, draw figures that combine all cells."""
    drawing.load_matplotlib(lambda: run.store.folder("matplotlib"))
    with drawing.style():
        if run.search is not None:
            return list(pareto_front(run))
        module = audits.find(run.audit)
        if run.cells:
            return [*sweep(run), *_drawn_figures(module, "sweep", run), *epsilon_bounds(run), *repetition(run)]
        return [*_drawn_figures(module, "figures", run), *estimates(run.summary)]


def _drawn_figures(module: ModuleType | None, name: str, run: Run) -> list[Figure]:
    """Draw figures with the named function in an audit's module. Returns an empty list if there is no such function."""
    draw = getattr(module, name, None)
    if draw is None:
        return []
    return [figure for figure in draw(run) if figure is not None]
