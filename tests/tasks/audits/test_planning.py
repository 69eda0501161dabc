"""The functions of an audit that receive the whole configuration while its plan is made."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from orchestrator.errors import EngramError
from orchestrator.spec import audits
from orchestrator.spec.resolve import SCALE, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.contract.audit import Audit

PACKAGES = Path(__file__).parents[3] / "tasks" / "audits"
AUDITS = sorted(folder.name for folder in PACKAGES.iterdir() if (folder / "__init__.py").exists())
MAX_FUNCTIONS = 20
DIGESTS: dict[str, str] = {}


def functions_given_config(audit: Audit, package: Path, config: Any) -> set[str]:
    """The functions of the package that receive the whole configuration during planning; methods of it do not count."""
    functions = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not Path(code.co_filename).is_relative_to(package):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(frame.f_locals.get(name) is config for name in names if name != "self"):
            functions.add(f"{Path(code.co_filename).stem}.{code.co_qualname}")

    sys.setprofile(watch)
    try:
        audit.plan(config)
    finally:
        sys.setprofile(None)
    return functions


def planned_configs(name: str) -> list[Any]:
    """The first configuration of each preset at `scale=tiny`, except presets that need files of the user."""
    configs = []
    for preset in audits.find(name).audit.presets:
        try:
            cells = resolve_cells(Spec(name, preset, {SCALE: "tiny"}))
            configs += [cell.config for cell in pin_cells(cells[:1], DIGESTS)]
        except EngramError:  # a preset of third-party answers
            continue
    return configs


@pytest.mark.parametrize("name", AUDITS)
def test_few_functions_receive_the_config(name: str) -> None:
    audit = audits.find(name).audit
    configs = planned_configs(name)
    assert configs
    functions = set[str]().union(*(functions_given_config(audit, PACKAGES / name, config) for config in configs))
    assert functions
    assert len(functions) <= MAX_FUNCTIONS, sorted(functions)
