"""What is installed: the sets of packages that `make` chooses from, the wheel and its page, and the container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from orchestrator.planning.extras import required_extras
from orchestrator.spec.audits import find
from tasks.contract.extras import EXTRAS
from tests.support.shell import ROOT


def test_the_container_copies_what_there_is_and_installs_engram_from_it(tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    values = dict(rest.split("=") for word, rest in steps if word == "ARG")
    sources = [source for word, rest in steps if word == "COPY" for source in rest.split()[:-1]]
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    for source in sources:
        name = source.replace("${LOCK}", values["LOCK"])
        assert f"!{name}" in ignore, name
        target = tmp_path / ("requirements.lock" if name.endswith(".lock") else f"src/{name}")
        target.parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, target)
    assert 3 == ignore.index("!pyproject.toml")  # after everything is left out, and the two locks
    said = dict(steps)  # of each word its last
    version = re.fullmatch(r"python:3\.(\d+)-slim", said["FROM"])
    assert version
    assert 11 <= int(version[1]) <= 13
    assert "engram" == said["USER"]
    assert said["ENTRYPOINT"] == '["engram"]'

    dependencies, ours = [rest for word, rest in steps if word == "RUN" and rest.startswith("pip")]
    assert dependencies.endswith("--no-deps --require-hashes -r /tmp/requirements.lock")
    command = [sys.executable, "-m", *ours.replace("/src", f"{tmp_path}/src").split(), "--target", f"{tmp_path}/there"]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "there" / "engram_command.py").exists()
    assert "from engram_command import main\n" in (tmp_path / "there" / "bin" / "engram").read_text()
    for package in ("engram", "orchestrator", "tasks", "dashboards"):
        files = {
            file.relative_to(tmp_path / "src") for file in (tmp_path / "src" / package).rglob("*.*") if file.is_file()
        }
        assert [] == [file for file in files if file.suffix != ".pyc" and not (tmp_path / "there" / file).exists()]


def test_on_the_package_index_the_readme_stands_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / "README.md").read_text()
    for each in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    home = project["project"]["urls"]["Repository"]
    led = re.findall(r"\]\(([^)#]+)\)|(?:src|srcset)=\"([^\"]+)\"", re.sub(r"```.*?```", "", text, flags=re.S))
    assert [] == [link for pair in led for link in pair if link and not link.startswith("https://")]
    assert all(url.startswith(home) for url in project["project"]["urls"].values())
    assert f"repository-code: {home}\n" in (ROOT / "CITATION.cff").read_text()


def test_a_new_wheel_takes_the_old_ones_place_and_leaves_the_rest_of_dist(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE", "engram_command.py"):
        shutil.copy(ROOT / name, tmp_path)
    for package in ("engram", "orchestrator", "tasks", "dashboards"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "dist" / "cache").mkdir(parents=True)
    kept = {"of_others-1.0-py3-none-any.whl", "engram_audit-0.0.9.tar.gz", "cache/notes"}
    for name in (*kept, "engram_audit-0.0.9-py3-none-any.whl"):
        (tmp_path / "dist" / name).write_text(name)
    make = ["make", "--old-file=.venv/ready", "wheel", f"BIN={Path(sys.executable).parent}"]
    subprocess.run(make, cwd=tmp_path, check=True, capture_output=True)
    there = {str(path.relative_to(tmp_path / "dist")) for path in (tmp_path / "dist").rglob("*") if path.is_file()}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert kept | {f"engram_audit-{version}-py3-none-any.whl"} == there
    assert all(name == (tmp_path / "dist" / name).read_text() for name in kept)


@pytest.mark.parametrize("found", ["whole", "with a GPU", "nothing"])
def test_a_machine_without_a_gpu_is_told_how_much_it_downloads_and_gets_the_smaller_set(
    found: str, tmp_path: Path
) -> None:
    for name in ("Makefile", "requirements.lock", "requirements-cpu.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    nvidia = tools / "nvidia-smi"
    nvidia.write_text("#!/bin/sh\n" + ("echo GPU 0: NVIDIA H100\n" if found == "with a GPU" else "exit 9\n"))
    nvidia.chmod(0o755)
    if found == "whole":
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "ready").touch()
    env = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    env = {name: value for name, value in env.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-n", "quickstart"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    steps = done.stdout.splitlines()
    asked = [line for line in steps if "pip sync" in line]
    assert (0 if found == "whole" else 1) == len(asked)
    if asked:
        lock = asked[0].split()[-1]
        assert ("requirements.lock" if found == "with a GPU" else "requirements-cpu.lock") == lock
        told = next(line for line in steps if line.startswith("sed"))
        assert steps.index(told) < next(i for i, line in enumerate(steps) if " -m venv " in line)
        said = subprocess.run(told, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert re.match(r"To download: \d\.\d GB", said)
        forgets = steps.index("rm -f .venv/ready .venv/cpu")  # an installation that is broken off counts as none
        assert forgets < steps.index(asked[0]) < steps.index(f"touch {mark_of(lock)}")


def mark_of(lock: str) -> str:
    """The mark of what this lock installs."""
    return ".venv/cpu" if "cpu" in lock else ".venv/ready"


def test_the_smaller_set_has_the_versions_of_the_whole_one_and_no_second_cuda() -> None:
    whole, small = (pins(ROOT / name) for name in ("requirements.lock", "requirements-cpu.lock"))
    assert set() == small - whole
    names = {name for name, _ in small}
    assert {"torch", "torchvision", "faiss-cpu", "ray", "mlflow", "hatchling", "editables"} <= names
    assert set() == names & {"faiss-gpu", "triton", "nvidia-cusolver", "pytest", "mypy"}
    assert [] == [name for name in names if name.endswith("-cu12")]


def test_both_sets_hold_what_every_quickstart_needs_and_every_extra() -> None:
    rows = re.findall(r"^\| \[`(\w+)`\]", (ROOT / "README.md").read_text(), flags=re.M)
    assert {"unique_feature", "relational"} <= set(rows)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    always = {re.match(r"[\w-]+", each)[0] for each in project["dependencies"]}  # type: ignore[index]
    offered = {
        extra: {re.match(r"[\w-]+", each)[0] for each in held}  # type: ignore[index]
        for extra, held in project["optional-dependencies"].items()
    }
    for name in rows:
        needed = {extra.package for extra in required_extras(find(name).audit.cells("quickstart"))}
        assert needed <= always, name
    assert [] == [extra for extra in EXTRAS if extra.package not in offered[extra.name]]
    assert {"faiss-gpu"} == offered.pop("gpu")  # which no setting needs
    assert set.union(*offered.values()) == {extra.package for extra in EXTRAS}
    for lock in ("requirements.lock", "requirements-cpu.lock"):
        assert set.union(always, *offered.values()) <= {name for name, _ in pins(ROOT / lock)}, lock


def test_an_extra_brings_no_second_cuda_where_pip_installs_it_but_for_that_of_a_gpu() -> None:
    """Where it came from stands below each package of the lock; pip resolves the same requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(each for held in project["optional-dependencies"].values() for each in held)]
    assert project["optional-dependencies"]["gpu"] == [each for each in asked if each.startswith("faiss-gpu")]
    second = {name: origins for name, origins in required_by(ROOT / "requirements.lock").items() if "-cu12" in name}
    assert second
    assert {"faiss-gpu"} == set.union(*second.values()) - second.keys()


def required_by(lock: Path) -> dict[str, set[str]]:
    """The packages of a lock, each with those that ask for it."""
    parts = re.findall(r"^([\w-]+)(?:\[[^]]*\])?==.*\n((?:    .*\n)+)", lock.read_text(), flags=re.M)
    return {name: set(re.findall(r"#(?: via|  ) +([\w-]+)", below)) for name, below in parts}


def pins(lock: Path) -> set[tuple[str, str]]:
    return set(re.findall(r"^([\w-]+)(?:\[[^]]*\])?==(\S+)", lock.read_text(), flags=re.M))
