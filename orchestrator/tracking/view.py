"""The list of runs as MLflow opens it: with the answers, what they rest on, and the intervals as columns.

MLflow keeps a view that is shared by link in a tag of the experiment: JSON, compressed and as base64 behind `deflate;`.
"""

from __future__ import annotations

import base64
import json
import zlib

KEY = "engram-answers"
TAG = f"mlflow.sharedViewState.{KEY}"
PARAMETER = f"viewStateShareKey={KEY}"  # of a link
COLUMNS = (
    "tags.`engram.answer`",
    "tags.`engram.estimate`",
    "tags.`engram.measured`",
    "metrics.`answer.estimate`",
    "metrics.`answer.low`",
    "metrics.`answer.high`",
    "params.`audit`",
    "params.`preset`",
)


def value() -> str:
    """The tag's value."""
    state = {"orderByKey": "attributes.start_time", "orderByAsc": False, "selectedColumns": list(COLUMNS)}
    packed = zlib.compress(json.dumps(state).encode(), level=9)
    return f"deflate;{base64.b64encode(packed).decode()}"
