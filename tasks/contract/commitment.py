"""What a commitment holds, and what an answer says of it.

Two parties that do not trust each other bind a draw: one gives away a commitment, and the other then names a nonce
(`tasks.external.bound_draw`). Whatever could be chosen once the other party's table is there moves the result, so the
commitment holds the whole configuration. Only what is not known before the nonce, and the secret itself, stay outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

# In the metadata of a config's field: a commitment does not hold it. These are the secret, which is hashed beside the
# configuration, the nonce and the commitment, and what the other party returns.
OUTSIDE_COMMITMENT = "outside a commitment"

Binding = Literal["", "draw", "analysis"]
"""What the commitment of a run holds: nothing, what is drawn from, or the whole configuration as well."""

ANALYSIS_BOUND = (
    "The analysis is bound, too: the commitment holds the whole configuration except the nonce, the secret and what "
    "the other party returned, so that nothing was chosen once that was there."
)
ANALYSIS_NOT_BOUND = (
    "Analysis not bound: the commitment holds only what was drawn from, so that data to compare with, networks, epochs "
    "and targets could be chosen once the other party's answers were there. In forgetting, the one of 48 calibration "
    "sets that accuses most readily accuses 35 of 100 innocents."
)


BINDINGS: Mapping[Binding, str] = {"": "", "draw": ANALYSIS_NOT_BOUND, "analysis": ANALYSIS_BOUND}
"""Whether the analysis is bound, in sentences. If the draw is not bound either, the answer says so itself."""
