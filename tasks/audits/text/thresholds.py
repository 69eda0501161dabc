"""The thresholds that appear in the rule text of all questions."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.audits.text.config import Text
from tasks.audits.text.given.returned import MOST_SAME
from tasks.audits.text.secrets.evidence import SURELY
from tasks.audits.text.secrets.ranks import UNEVEN
from tasks.contract.epsilon_rows import CONFIDENCE
from tasks.contract.power import SMALLEST


def thresholds(config: Text) -> Mapping[str, str]:
    """Return each threshold as text, keyed by its name in the rules. All are in per cent except `nats`."""
    return {
        "level": f"{100 * config.level:g}",
        "uneven": f"{100 * UNEVEN:g}",
        "surely": f"{100 * SURELY:g}",
        "same": f"{100 * MOST_SAME:g}",
        "confidence": f"{100 * CONFIDENCE:g}",
        "broken": f"{100 * (1 - CONFIDENCE):.0f}",
        "beaten": f"{100 * (0.5 + config.negligible):g}",
        "nats": f"{SMALLEST:g}",
        "both": f"{100 * (config.level + SURELY):g}",
    }
