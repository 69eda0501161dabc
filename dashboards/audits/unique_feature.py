"""What `unique_feature` draws of a run."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.figure import Figure
from dashboards.gallery import Gallery
from dashboards.run import Run


def figures(run: Run) -> Iterator[Figure]:  # noqa: ARG001
    """The canaries against their twins."""
    yield from ()


def gallery(run: Run, show_images: bool) -> Gallery | None:  # noqa: ARG001
    """The canaries as the models saw them."""
    return None
