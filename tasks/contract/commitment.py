"""Which fields a commitment contains, and the sentences that report it.

Two parties that do not trust each other bind a draw: one passes on a commitment, and the other then names a nonce
(`tasks.external.bound_draw`). Every setting that could be chosen after the other party's table arrives changes the
result, so the commitment contains the whole configuration. Only the secret, values that are unknown before the nonce
and the other party's files stay outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

# In the metadata of a config's field: a commitment does not contain it. These fields are the secret, which is hashed
# with the configuration, the nonce, the commitment, and the files that the other party returns.
OUTSIDE_COMMITMENT = "outside a commitment"

Binding = Literal["", "draw", "analysis"]
"""The content of a run's commitment: none, the pool of the draw, or the whole configuration."""

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
"""Whether the analysis is bound, in sentences. If the draw is not bound either, the audit's own limits report it."""
