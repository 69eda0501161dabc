"""A package that a run needs and that is not installed is told when the run is planned, with what installs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orchestrator.planning.extras import required_extras
from orchestrator.spec.audits import find, names
from tasks.contract import extras
from tasks.contract.extras import OPACUS, OPTUNA, PEFT, TIMM, TRANSFORMERS, Extra, install_command
from tests.support.shell import Here

RELATIONAL = ("relational", "--preset", "smoke")


def remove(monkeypatch: pytest.MonkeyPatch, *packages: Extra) -> None:
    for extra in packages:
        monkeypatch.setitem(sys.modules, extra.package, None)


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (("plan", *RELATIONAL), (TRANSFORMERS,)),
        (("run", *RELATIONAL, "--address", "none"), (TRANSFORMERS,)),
        (("plan", *RELATIONAL, "adaptation=lora"), (PEFT,)),
        (("plan", "relational", "--preset", "private", "scale=tiny"), (OPACUS,)),
        (("plan", "unique_feature", "--preset", "smoke", "patience=0", "privacy.epsilon=8"), (OPACUS,)),
        (("plan", "deja_vu", "--preset", "smoke", "augmentation.resolution=32", "backbone=vit-ti"), (TIMM,)),
        (("search", "unique_feature", "--preset", "smoke", "--over", "dropout=true,false", "--trials", "2",
          "--sampler", "optuna"), (OPTUNA,)),
        (("plan", *RELATIONAL, "adaptation=lora", "privacy.epsilon=8"), (TRANSFORMERS, PEFT, OPACUS)),
    ],
)  # fmt: skip
def test_it_is_told_in_one_line_before_anything_is_made(
    arguments: tuple[str, ...], absent: tuple[Extra, ...], engram: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(monkeypatch, *absent)
    said = engram(*arguments, code=1)
    (line,) = said.stderr.splitlines()[-1:]
    assert all(f"{extra.package} (for {extra.purpose})" in line for extra in absent)
    assert "not installed" in line
    assert all(extra.name in line for extra in absent) or "make -B" in line
    assert "expected time" not in said.stdout
    if arguments[0] != "search":
        assert list(engram.folder.iterdir()) == []


def test_what_needs_no_package_that_is_absent_is_planned_and_stored_results_are_read(
    engram: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    linear = ("relational", "linear.sizes=[[20, 30]]", "linear.trainings=2", "--address", "none")
    stored = ("unique_feature", "scale=tiny", "canaries=1", "epochs=1", "examples=100", "--address", "none")
    engram("run", *stored)
    remove(monkeypatch, *extras.EXTRAS)
    assert engram.json("plan", *linear)["missing"]
    assert engram.json("run", *stored)["jobs"]["done"] == 0


def test_show_list_and_doctor_tell_what_needs_it(engram: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch, TIMM)
    listed = engram("list")
    assert "architectures (8 cells, needs timm)" in listed.stdout
    assert f"not installed: timm; {install_command([TIMM])}" in listed.stderr
    told = {audit["name"]: audit["extras"] for audit in engram.json("list")["audits"]}
    assert (told["deja_vu"]["quickstart"], told["deja_vu"]["architectures"]) == ([], ["timm"])
    shown = engram("show", "deja_vu", "architectures").stdout
    assert "packages missing: timm (" in " ".join(shown.split())
    (preset,) = engram.json("show", "relational", "quickstart")["presets"]
    assert preset["extras"] == {"transformers": True}


def test_every_audit_says_of_its_presets_only_packages_that_there_are() -> None:
    needed = {extra for name in names() for cell in _cells(name) for extra in required_extras([cell])}
    assert {TRANSFORMERS, OPACUS, TIMM} <= needed <= set(extras.EXTRAS)


def _cells(name: str) -> list[object]:
    audit = find(name).audit
    return [cell for preset in audit.presets for cell in audit.cells(preset)]


def test_where_make_installs_the_advice_is_make_and_elsewhere_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "ROOT", tmp_path)
    assert install_command([TRANSFORMERS, PEFT, OPACUS]) == "pip install 'engram-audit[run,relational,privacy]'"
    (tmp_path / "requirements.lock").touch()
    assert install_command([TIMM]).startswith("pip install")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert f"make -B -C {tmp_path} install" == install_command([TIMM])
