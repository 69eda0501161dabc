"""What `unique_feature` draws of a run: the canaries' models against their twins, which never saw the feature."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.audits.unique_feature.effects import effect, separation
from dashboards.audits.unique_feature.histories import histories
from dashboards.audits.unique_feature.pairs import Pairs
from dashboards.audits.unique_feature.pictures import pictures
from dashboards.audits.unique_feature.published import calls, divergences
from dashboards.figure import Figure
from dashboards.gallery import Gallery
from dashboards.run import Run


def figures(run: Run) -> Iterator[Figure]:
    """The answer first, then what the published score says, then how the models were trained."""
    pairs = Pairs(run.table("canary_scores"))
    drawn = (effect(pairs, run.summary), separation(pairs), divergences(pairs), calls(pairs))
    yield from (figure for figure in drawn if figure is not None)
    trained = histories(run.table("history"))
    if trained is not None:
        yield trained


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """The canaries as their models saw them."""
    return pictures(run, Pairs(run.table("canary_scores")), show_images)
