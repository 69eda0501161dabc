"""Private names of Ray are used in one module, which checks them and reports the version to install."""

from __future__ import annotations

import re
from pathlib import Path

import ray

from bench.ray_versions import read_bounds
from orchestrator.executors import private_ray

ROOT = Path(__file__).resolve().parents[3]


def test_missing_name_is_reported_with_versions() -> None:
    names = {"ray._raylet": ("GcsClient", "NoSuchName.instance")}
    message = private_ray.find_missing(names, "2.40.0")
    assert message.startswith("Ray 2.40.0 has no ray._raylet.NoSuchName.instance, which Engram needs; install Ray 2.52")
    assert "\n" not in message
    assert private_ray.find_missing({"ray.no_such_module": ("name",)}, "2.40.0")


def test_installed_version_has_all_names() -> None:
    assert private_ray.find_missing({**private_ray.NAMES, **private_ray.TUNE_NAMES}, ray.__version__) == ""
    assert private_ray.trial_variables() is private_ray.trial_variables()


def test_version_bounds_match_the_package() -> None:
    bounds = (private_ray.LOWEST, private_ray.NEXT)
    assert read_bounds() == bounds
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text()
    assert re.findall(r"ray-\w+ >=([\d.]+),<([\d.]+)", recipe) == [bounds, bounds]


def test_no_other_module_uses_private_names() -> None:
    private = re.compile(r"\bray\._|from ray\._|ray\.core\.generated|class_cache")
    users = []
    for package in ("orchestrator", "tasks", "dashboards", "engram"):
        users += [path.name for path in (ROOT / package).rglob("*.py") if private.search(path.read_text())]
    assert users == ["private_ray.py"]
