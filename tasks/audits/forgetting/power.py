"""Power of a configuration: whether any target could be accused, and how often a model that holds D_Q is detected.

The test concerns D_Q as a whole. The smallest possible p-value of a target, adjusted over the targets, follows from the
number of draws. Power assumes that scores vary between images by one standard deviation, and that training on an image
of D_Q raises its score by EFFECT standard deviations.
"""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.forgetting.audited import count_targets
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.query_set import probe_rows
from tasks.audits.forgetting.target_evidence import LEVEL
from tasks.contract.power import GOAL, Power, Resolution, mean_rate, smallest_size

EFFECT = 1.0  # in standard deviations over images
SHARE = 0.25  # share of D_Q in training


def resolution(config: Forgetting) -> Resolution | None:
    """Return whether a target that holds D_Q could be accused. None without a control set, when no target is judged."""
    control = config.query.control
    audited = config.audited
    if control is None or audited is None:
        return None
    advice = "draw more permutations"
    return Resolution(1 / (1 + control.permutations), count_targets(audited), LEVEL, "targets", advice)


def power(config: Forgetting) -> Iterator[Power]:
    """Yield the detection rate of one target that holds SHARE of D_Q."""
    if not config.query.is_controlled or config.audited is None:
        return
    query, control = (len(rows) for _, rows in probe_rows(config.probes))

    def rate(size: int) -> float:
        error = (1 / size + query / (control * size)) ** 0.5
        return mean_rate(SHARE * EFFECT, error)

    required_size = smallest_size(query, 1, lambda size: rate(size) >= GOAL, factor=1.05)
    if required_size is None:
        more = ""
    else:
        more = f"give {required_size:,} images of D_Q and {required_size * control // query:,} of control"
    description = f"a model that holds {100 * SHARE:g} % of {query:,} images of D_Q ({control:,} control images)"
    yield Power(description, rate(query), more)
