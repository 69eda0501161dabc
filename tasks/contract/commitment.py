"""Which fields a commitment covers, and the sentences that report it.

Two parties that do not trust each other can bind a random draw: one party passes on a commitment, and the other then
names a nonce (`tasks.external.bound_draw`). Any setting that could still be chosen after the other party's table
arrives could be used to change the result, so the commitment covers the whole configuration. Only the secret, the
values that are unknown before the nonce and the other party's files are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

# Metadata key of config fields that a commitment does not cover: the secret, which is hashed with the configuration,
# the nonce, the commitment itself, and the files that the other party returns.
OUTSIDE_COMMITMENT = "outside a commitment"

Binding = Literal["", "draw", "analysis"]
"""What a run's commitment covers: nothing, the pool of the draw, or the whole configuration."""

ANALYSIS_BOUND = (
    "The analysis is bound, too: the commitment contains the whole configuration except the nonce, the secret and the "
    "other party's answers, so no setting was chosen after these answers arrived."
)
ANALYSIS_NOT_BOUND = (
    "Analysis not bound: the commitment contains only the pool of the draw, so data to compare with, networks, epochs "
    "and targets could be chosen after the other party's answers arrived. In forgetting, a provider who picks one of "
    "48 calibration sets for each owner accuses 32 of 100 innocent owners."
)
BINDINGS: Mapping[Binding, str] = {"": "", "draw": ANALYSIS_NOT_BOUND, "analysis": ANALYSIS_BOUND}
"""Sentences that state whether the analysis is bound. If the draw is not bound either, the audit's limits say so."""
