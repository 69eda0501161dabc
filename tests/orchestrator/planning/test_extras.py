"""Planning a run reports packages that it needs and that are not installed, with the command that installs them."""

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
def test_missing_package_is_reported_before_any_work(
    arguments: tuple[str, ...], absent: tuple[Extra, ...], engram: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(monkeypatch, *absent)
    completed = engram(*arguments, code=1)
    (line,) = completed.stderr.splitlines()[-1:]
    assert all(f"{extra.package} (for {extra.purpose})" in line for extra in absent)
    assert "not installed" in line
    assert all(extra.name in line for extra in absent) or "make -B" in line
    assert "expected time" not in completed.stdout
    if arguments[0] != "search":
        assert list(engram.folder.iterdir()) == []


def test_stored_results_need_no_missing_package(engram: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = ("relational", "linear.sizes=[[20, 30]]", "linear.trainings=2", "--address", "none")
    stored_run = ("unique_feature", "scale=tiny", "canaries=1", "epochs=1", "examples=100", "--address", "none")
    engram("run", *stored_run)
    remove(monkeypatch, *extras.EXTRAS)
    assert engram.json("plan", *linear)["missing"]
    assert engram.json("run", *stored_run)["jobs"]["done"] == 0


def test_show_list_and_doctor_name_missing_packages(engram: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch, TIMM)
    assert f"not installed: timm; {install_command([TIMM])}" in engram("list").stderr
    extras_by_audit = {}
    for audit in engram.json("list")["audits"]:
        extras_by_audit[audit["name"]] = audit["extras"]
    assert extras_by_audit["deja_vu"]["quickstart"] == []
    assert extras_by_audit["deja_vu"]["architectures"] == ["timm"]
    printed_preset = engram("show", "deja_vu", "architectures").stdout
    assert "packages missing: timm (" in " ".join(printed_preset.split())
    (preset,) = engram.json("show", "relational", "quickstart")["presets"]
    assert preset["extras"] == {"transformers": True}
    remove(monkeypatch, TRANSFORMERS)
    assert "quickstart (needs transformers)" in engram("show").stdout


def test_presets_need_only_declared_extras() -> None:
    required = set()
    for name in names():
        for cell in preset_cells(name):
            for extra in required_extras([cell]):
                required.add(extra)
    assert {TRANSFORMERS, OPACUS, TIMM} <= required <= set(extras.EXTRAS)


def preset_cells(name: str) -> list[object]:
    audit = find(name).audit
    return [cell for preset in audit.presets for cell in audit.cells(preset)]


def test_advice_is_make_only_if_make_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "ROOT", tmp_path)
    assert install_command([TRANSFORMERS, PEFT, OPACUS]) == "pip install 'engram-audit[run,relational,privacy]'"
    (tmp_path / "requirements.lock").touch()
    assert install_command([TIMM]).startswith("pip install")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert install_command([TIMM]) == f"make -B -C {tmp_path} install"
