"""Imports point one way, dashboards -> orchestrator -> tasks, and heavy packages stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tasks", "orchestrator", "dashboards", "engram")
# The order of the orchestrator's packages in a run: no package imports a later one.
FLOW = (
    *("spec", "planning", "store", "run_folder", "executors"),
    *("pricing", "scheduling", "inspection", "tracking", "runs", "searches", "scaffold", "cli"),
)
AUDITS = sorted(path.stem for path in (ROOT / "tasks" / "audits").iterdir() if not path.name.startswith("_"))
MEASURING = ("bench", "studies", "measurement", "tests")  # not in the wheel
NEVER = {
    "tasks": {"ray", "mlflow", "orchestrator", "dashboards"},
    "orchestrator": {"torch", "torchvision", "dashboards", *(f"tasks.audits.{audit}" for audit in AUDITS)},
    "dashboards": {"ray", "torch", "torchvision"},
    "engram": {"ray", "mlflow", "torch", "torchvision"},
}
ONLY = {
    "ray": {
        f"orchestrator/{path}.py"
        for path in (
            "executors/cluster",
            "executors/connection",
            "executors/metrics",
            "executors/private_ray",
            "executors/ray",
            "executors/submission",
            "searches/tuning",
        )
    },
    "mlflow": {
        "orchestrator/tracking/server.py",
        "orchestrator/tracking/tracked_run.py",
        "orchestrator/tracking/job_runs.py",
    },
}
INSIDE_FUNCTIONS = {
    *("faiss", "transformers", "tokenizers", "peft", "timm", "opacus", "nibabel", "sklearn", "onnx", "onnxruntime"),
}


def modules() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@cache
def import_statements(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements of a module, and whether each is at the top level."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    statements = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            statements.append((node, id(node) in top))
    return statements


def imported(path: Path, top_only: bool = False) -> Iterator[str]:
    """The names of the imports of a module, anywhere or at its top level."""
    for node, at_top in import_statements(path):
        if top_only and not at_top:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    relative = path.relative_to(ROOT)
    names = set(imported(path))
    forbidden = {*NEVER[relative.parts[0]], *MEASURING}
    assert set() == {name for name in names for package in forbidden if within(name, package)}
    for package, allowed in ONLY.items():
        if str(relative) not in allowed:
            assert set() == {name for name in names if within(name, package)}
    top = set(imported(path, top_only=True))
    assert set() == {name for name in top for package in INSIDE_FUNCTIONS if within(name, package)}


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [("bench", "studies"), ("studies", "bench"), ("measurement", "bench"), ("measurement", "studies")],
)
def test_benchmarks_and_studies_share_only_measurement(package: str, forbidden: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        assert [name for name in imported(path) if within(name, forbidden)] == [], path


def test_console_script_handles_signals_before_heavy_imports() -> None:
    assert set(imported(ROOT / "engram_command.py", top_only=True)) == {"os", "_signal"}
    assert "_signal" in sys.builtin_module_names


@pytest.mark.parametrize("package", FLOW)
def test_runs_flow_goes_one_way(package: str) -> None:
    later = FLOW[FLOW.index(package) + 1 :]
    for path in sorted((ROOT / "orchestrator" / package).rglob("*.py")):
        names = set(imported(path))
        assert set() == {
            name for name in names for later_package in later if within(name, f"orchestrator.{later_package}")
        }, path


def test_every_orchestrator_package_is_in_the_flow() -> None:
    assert {path.parent.name for path in (ROOT / "orchestrator").glob("*/__init__.py")} == set(FLOW)


@pytest.mark.parametrize("audit", AUDITS)
def test_one_audit_never_imports_another(audit: str) -> None:
    audit_path = ROOT / "tasks" / "audits" / audit
    other_audits = []
    for other_audit in AUDITS:
        if other_audit != audit:
            other_audits.append(f"tasks.audits.{other_audit}")
    for path in audit_path.rglob("*.py") if audit_path.is_dir() else [audit_path.with_suffix(".py")]:
        assert set() == {name for name in imported(path) for other_audit in other_audits if within(name, other_audit)}


def test_no_imports_form_a_circle() -> None:
    """Imports inside functions and for types count as well."""
    names = {_module_name(path): path for path in modules()}
    edges = {}
    for name, path in names.items():
        edges[name] = names.keys() & set(_sources(path, names)) - {name}
    while leaves := {name for name, sources in edges.items() if not sources & edges.keys()}:
        edges = {name: sources for name, sources in edges.items() if name not in leaves}
    assert {name: sorted(sources & edges.keys()) for name, sources in edges.items()} == {}


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _sources(path: Path, names: Collection[str]) -> Iterator[str]:
    """The imports of a module: for `from package import module` only the module."""
    for node, _ in import_statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in names else node.module for name in inside)


def test_no_module_is_called_utils_or_helpers() -> None:
    assert [path for path in modules() if path.stem in {"utils", "helpers", "misc", "common"}] == []


def test_tasks_run_without_ray_mlflow_and_faiss(tmp_path: Path) -> None:
    """In a bare process that cannot import these packages, a run completes from command to tables."""
    script = f"""
import sys
for name in ("ray", "mlflow", "faiss", "onnx", "onnxruntime"):
    sys.modules[name] = None
import orchestrator
few = dict(preset="smoke", canaries=1, epochs=1, probes=20) | {{"family.count": 20}}
report = orchestrator.run("unique_feature", store={str(tmp_path)!r}, address="none", **few)
assert report.table("summary").num_rows > 5
print(report.state)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "finished", done.stderr
