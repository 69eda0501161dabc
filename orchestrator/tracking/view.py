"""The list of runs as MLflow opens it: with the answers, their estimates with intervals, and what these measure.

MLflow keeps a view that is shared by link in a tag of the experiment: JSON, compressed and as base64 behind `deflate;`.
"""

from __future__ import annotations

import base64
import json
import zlib

KEY = "engram-answers"
TAG = f"mlflow.sharedViewState.{KEY}"
PARAMETER = f"viewStateShareKey={KEY}"  # of a link
# Tags, since MLflow writes metrics with all digits. With the width of each in pixels.
COLUMNS = {"tags.`engram.answer`": 120, "tags.`engram.estimate`": 150, "tags.`engram.measured`": 240}
OTHERS = {"attributes.`Run Name`": 280, "runDateAndNestInfo": 140, "duration": 90}


def value() -> str:
    """The tag's value."""
    name, *rest = OTHERS
    state = {
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": list(COLUMNS),
        "columnOrder": [name, *COLUMNS, *rest],
        "columnWidths": OTHERS | COLUMNS,
    }
    packed = zlib.compress(json.dumps(state).encode(), level=9)
    return f"deflate;{base64.b64encode(packed).decode()}"
