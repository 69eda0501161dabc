"""The records that a run's models were asked about, as its audit gives them out: the gallery of an audit on records."""

from __future__ import annotations

from itertools import islice

import numpy as np

from dashboards import configuration
from dashboards.gallery import Gallery, error_reason, text_records
from dashboards.run import Run
from orchestrator.errors import EngramError
from orchestrator.spec import audits
from tasks.datasets.records import Records

KIND = "records:"  # of a data set's name
FEW, SETS = 20, 10  # records of a set, and sets, that are shown
TITLE = "Records"
CAPTION = f"What the models were asked about: the first {FEW} records of each set."


def record_gallery(run: Run, show_images: bool) -> Gallery | None:
    """The first records of each set; None where the audit has no probes, or its data are no records.

    Records are the user's own: without `show_images` there is a note in their place.
    """
    names = [data.name for data in configuration.data_sets(run) if data.name.startswith(KIND)]
    try:
        handout = audits.find(run.audit).audit.handout
    except EngramError:
        return None
    if handout is None or not names:
        return None
    if not show_images:
        yours = f"Records of {', '.join(names)} are yours and are not shown unless asked for with --show-images."
        return Gallery(CAPTION, False, yours, title=TITLE)
    if run.private_config is None:
        changed = "The records cannot be shown: the audit has changed since the run was made."
        return Gallery(CAPTION, False, changed, title=TITLE)
    try:
        sets = [
            (name, held) for name, held in islice(handout.probes(run.private_config), SETS) if isinstance(held, Records)
        ]
        found = [each for name, held in sets for each in text_records(held.rows(np.arange(min(FEW, len(held)))), name)]
    except (ValueError, OSError, IndexError) as error:  # DatasetError among them
        return Gallery(CAPTION, False, f"The records cannot be shown{error_reason(run, error)}.", title=TITLE)
    return Gallery(CAPTION, bool(found), records=tuple(found), title=TITLE) if found else None
