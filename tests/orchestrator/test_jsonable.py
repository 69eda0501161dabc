"""Whatever a table holds has a place in JSON that any reader takes."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import numpy as np
import pytest

from orchestrator.quantities import jsonable


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, 0.1),
        (math.nan, None),
        (-math.inf, None),
        (np.float64("inf"), None),
        (True, True),
        (2**70, 2**70),
        (None, None),
        ("ε", "ε"),
        (b"\xff\x00", "/wA="),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (datetime.datetime(2024, 2, 29, 1, 2, tzinfo=datetime.UTC), "2024-02-29 01:02:00+00:00"),
        ((1, [math.nan, (b"a",)]), [1, [None, ["YQ=="]]]),
        ({1: {"x": (math.inf,)}, None: []}, {"1": {"x": [None]}, "None": []}),
    ],
)
def test_a_value_is_as_json_has_it(value: Any, expected: Any) -> None:
    found = jsonable(value)
    assert expected == found
    assert type(expected) is type(found) or isinstance(found, float)
    assert expected == json.loads(json.dumps(found, allow_nan=False))
