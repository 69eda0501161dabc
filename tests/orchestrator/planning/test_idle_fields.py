"""Settings without effect: which fields a plan does not depend on."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.inspection.preview import preview
from orchestrator.planning.idle_fields import describe_idle_fields, find_idle_fields
from orchestrator.spec.specification import Spec

OUTSIDE = "outside.data"


@pytest.mark.parametrize(
    ("audit", "preset", "settings", "sweep", "expected"),
    [
        ("text", "identifiers", {"seed": "7"}, {}, []),
        ("unique_feature", "smoke", {"epochs": "2", "seed": "3"}, {}, []),
        ("unique_feature", "smoke", {"epochs": "3"}, {}, []),  # as in the preset
        ("unique_feature", "smoke", {"stopping_level": "0"}, {}, []),
        ("unique_feature", "smoke", {"scale": "tiny"}, {}, []),
        ("forgetting", "smoke", {"outside.data": "photos#28x28#grey"}, {"seed": ["1", "2"]}, [OUTSIDE]),
        ("forgetting", "smoke", {}, {OUTSIDE: ["photos#28x28#grey", "digits"], "seed": ["1", "2"]}, [OUTSIDE]),
        ("text", "smoke", {"negligible": "0.2"}, {}, []),  # in no key, but the answer reads it
        ("density", "smoke", {"link": "1000"}, {}, ["link"]),  # longer than any training
        ("relational", "smoke", {"negligible": "0.2"}, {}, []),  # by its short name
        ("deja_vu", "smoke", {"checkpoints": "2"}, {}, []),
    ],
)
def test_fields_that_change_nothing(
    audit: str, preset: str, settings: dict[str, Any], sweep: dict[str, Any], expected: list[str]
) -> None:
    assert find_idle_fields(Spec(audit, preset, settings, sweep), {}) == expected


def test_plan_warns_in_one_line(tmp_path: Any) -> None:
    spec = Spec("density", "smoke", {"link": "1000"}, store=str(tmp_path / "none"))
    previewed = preview(spec)
    assert previewed["idle_fields"] == ["link"]
    line, *_ = previewed["warnings"]
    assert line == describe_idle_fields(["link"], spec)
    assert line == "link changes nothing: no job of density with preset smoke depends on it"
    two = describe_idle_fields(["link", "seed"], spec)
    assert two == "link and seed change nothing: no job of density with preset smoke depends on them"
    assert preview(Spec("text", "identifiers", {"seed": "7"}, store=str(tmp_path / "none")))["warnings"] == []
