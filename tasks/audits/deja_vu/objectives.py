"""What a search over training choices moves: the deja vu score, and the accuracy of a linear probe."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.deja_vu.answer import decisive_name, format_setting
from tasks.audits.deja_vu.config import DejaVu
from tasks.objectives import Objective, Objectives
from tasks.summaries import Row, index_rows


def memorization_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """The row of the score on which the answer rests: of a given encoder the corrected one."""
    return index_rows(summary).get(decisive_name(config))


def probe_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """The row of the validation accuracy of a linear probe on the same layer; it is there if `probe` is measured."""
    setting = format_setting(epoch=config.last_epoch, layer=config.asked_layers[0], split="validation")
    return index_rows(summary).get(("probe accuracy", setting))


OBJECTIVES = Objectives(
    memorization=Objective("deja vu score", "share", "lower", memorization_row),
    utility=Objective("probe accuracy", "share", "higher", probe_row),
    allowance=0.01,
)
