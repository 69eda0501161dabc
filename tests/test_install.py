"""What is installed: the sets of packages that `make` chooses from, the wheel and its page, and the container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rattler_build import Stage0Recipe, VariantConfig

from orchestrator import doctor
from orchestrator.planning.extras import required_extras
from orchestrator.spec.audits import find
from tasks.contract.extras import COMMON, EXTRAS
from tests.support.shell import ROOT, Here
from tests.support.waiting import HANGING

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
OFFERED = PROJECT["optional-dependencies"]
AUDITS = sorted(file.parent.name for file in (ROOT / "tasks" / "audits").glob("*/__init__.py"))
CORE = {Requirement(each).name for each in PROJECT["dependencies"]}


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
    assert ignore.index("!pyproject.toml") == 3  # after everything is left out, and the two locks
    said = dict(steps)  # of each word its last
    version = re.fullmatch(r"python:3\.(\d+)-slim", said["FROM"])
    assert version
    assert 11 <= int(version[1]) <= 13
    assert said["USER"] == "engram"
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
        assert [file for file in files if file.suffix != ".pyc" and not (tmp_path / "there" / file).exists()] == []


def test_on_the_package_index_the_readme_stands_alone() -> None:
    text = (ROOT / "README.md").read_text()
    for each in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    home = PROJECT["urls"]["Repository"]
    led = re.findall(r"\]\(([^)#]+)\)|(?:src|srcset)=\"([^\"]+)\"", re.sub(r"```.*?```", "", text, flags=re.S))
    assert [link for pair in led for link in pair if link and not link.startswith("https://")] == []
    assert all(url.startswith(home) for url in PROJECT["urls"].values())
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
    assert kept | {f"engram_audit-{PROJECT['version']}-py3-none-any.whl"} == there
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
    assert [name for name in names if name.endswith("-cu12")] == []


def test_both_sets_hold_what_every_quickstart_needs_and_every_extra() -> None:
    for name in AUDITS:
        needed = {extra.package for extra in required_extras(find(name).audit.cells("quickstart"))}
        assert needed <= brought_by("run"), name
    everything = {package for extra in OFFERED for package in brought_by(extra)} - {"faiss-gpu"}
    for lock in ("requirements.lock", "requirements-cpu.lock"):
        assert CORE | everything - {"faiss-cpu"} <= {name for name, _ in pins(ROOT / lock)}, lock


def test_a_package_that_is_missing_is_brought_by_the_extra_that_is_named() -> None:
    assert [extra for extra in (*COMMON, *EXTRAS) if extra.package not in brought_by(extra.name)] == []
    named = {extra.package for extra in (*COMMON, *EXTRAS)} | {"faiss-cpu", "faiss-gpu"}
    assert {package for extra in OFFERED for package in brought_by(extra)} == named
    assert brought_by("all") | {"faiss-gpu"} == named
    assert set(doctor.CORE) == CORE


@pytest.mark.parametrize("name", AUDITS)
def test_the_extra_of_an_audit_brings_what_its_presets_need(name: str) -> None:
    audit = find(name).audit
    needed = {extra.package for preset in audit.presets for extra in required_extras(audit.cells(preset))}
    assert needed <= brought_by(name)


def test_the_recipe_of_conda_has_the_requirements_and_commands_of_the_extra_that_runs_audits() -> None:
    (rendered,) = Stage0Recipe.from_file(ROOT / "recipe" / "recipe.yaml").render(VariantConfig())
    recipe = rendered.recipe.to_dict()
    assert (PROJECT["name"], PROJECT["version"]) == (recipe["package"]["name"], str(recipe["package"]["version"]))
    assert PROJECT["description"] == recipe["about"]["summary"]
    assert PROJECT["urls"]["Repository"] == recipe["about"]["repository"]
    assert [f"{name} = {value}" for name, value in PROJECT["scripts"].items()] == recipe["build"]["python"][
        "entry_points"
    ]
    expected = {"python": SpecifierSet(PROJECT["requires-python"])}
    for each in (*map(Requirement, PROJECT["dependencies"]), *requirements_of("run")):
        for name in on_conda(each):
            expected[name] = each.specifier
    given = [each.partition(" ") for each in recipe["requirements"]["run"]]
    assert expected == {name: SpecifierSet(specifier) for name, _, specifier in given}
    built_with = {Requirement(each).name for each in PYPROJECT["build-system"]["requires"]}
    assert {"python", "pip", *built_with} == {each.partition(" ")[0] for each in recipe["requirements"]["host"]}


def on_conda(requirement: Requirement) -> list[str]:
    """The packages of conda-forge that stand for one of the package index."""
    if requirement.name == "ray":
        return [f"ray-{extra}" for extra in sorted(requirement.extras)]
    return [{"torch": "pytorch", "matplotlib": "matplotlib-base"}.get(requirement.name, requirement.name)]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is made of the source archive, beside it."""
    folder = tmp_path_factory.mktemp("released")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_what_a_release_uploads_is_sound(wheel: Path) -> None:
    archives = list(wheel.parent.glob("engram_audit-*"))
    assert {".gz", ".whl"} == {each.suffix for each in archives}
    command = [sys.executable, "-m", "twine", "check", "--strict", *archives]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="session")
def small(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and what it requires without any extra; the place of its commands."""
    folder = tmp_path_factory.mktemp("small")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for path in {path for each in distributions(PROJECT["dependencies"]) for path in top_level_paths(each)}:
        (packages / path.name).symlink_to(path)
    install = ("install", "--quiet", "--no-deps", "--no-index", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *install], check=True)
    return folder / "bin"


def distributions(required: Iterable[str]) -> list[metadata.Distribution]:
    """What is installed here of these requirements and of all that they require."""
    found: dict[str, metadata.Distribution] = {}
    ahead = [Requirement(each) for each in required]
    while ahead:
        each = ahead.pop()
        if each.name not in found and (each.marker is None or each.marker.evaluate({"extra": ""})):
            found[each.name] = metadata.distribution(each.name)
            ahead += map(Requirement, found[each.name].requires or ())
    return list(found.values())


def top_level_paths(distribution: metadata.Distribution) -> set[Path]:
    """The folders and files of a distribution beside those of others."""
    inside = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    return {Path(str(distribution.locate_file(name))) for name in inside}


@pytest.mark.slow
def test_the_wheel_alone_reads_a_store_and_names_the_extra_for_the_rest(
    small: Path, tmp_path: Path, engram: Here
) -> None:
    fields = ("scale=tiny", "canaries=2")
    run = engram.json("run", "unique_feature", "--preset", "smoke", *fields, "--address", "none")["run"]

    def said(*arguments: str, code: int = 0, command: str = "engram") -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        done = subprocess.run(
            [small / command, *arguments], cwd=engram.folder, env=env, capture_output=True, text=True, timeout=HANGING
        )
        assert code == done.returncode, done.stderr + done.stdout
        return done.stdout if code == 0 else done.stderr

    assert "unique_feature" in said("-c", "import engram; print(*engram.audits())", command="python")
    assert "Commands that run audits" in said("--help")
    assert f"engram {PROJECT['version']}\n" == said("--version", command="engram-audit")
    assert "quickstart" in said("show", "text")
    assert run in said("runs")
    assert "M_w effect" in said("results", run, "summary")
    said("verify")
    for extra, arguments in {
        "report": ("report", run),
        "bucket": ("status", "--store", "s3://bucket/prefix"),
        "run": ("run", "unique_feature", "--preset", "smoke", "--store", "new"),
    }.items():
        line = said(*arguments, code=1).splitlines()[-1]
        assert f"pip install 'engram-audit[{extra}]'" in line
        assert "not installed" in line
    attempt = "import engram; engram.run('unique_feature', preset='smoke', store='new')"
    assert "engram-audit[run]" in said("-c", attempt, code=1, command="python").splitlines()[-1]


def requirements_of(extra: str) -> list[Requirement]:
    """What an extra requires, and what the extras of ours that it names do."""
    found = []
    for each in map(Requirement, OFFERED[extra]):
        if each.name == PROJECT["name"]:
            found += [below for name in each.extras for below in requirements_of(name)]
        else:
            found.append(each)
    return found


def brought_by(extra: str) -> set[str]:
    return {each.name for each in requirements_of(extra)}


def test_an_extra_brings_no_second_cuda_where_pip_installs_it_but_for_that_of_a_gpu() -> None:
    """Where it came from stands below each package of the lock; pip resolves the same requirements."""
    assert [name for name in OFFERED if "faiss-gpu" in brought_by(name)] == ["gpu"]
    second = {name: origins for name, origins in required_by(ROOT / "requirements.lock").items() if "-cu12" in name}
    assert second
    assert {"faiss-gpu"} == set.union(*second.values()) - second.keys()


def required_by(lock: Path) -> dict[str, set[str]]:
    """The packages of a lock, each with those that ask for it."""
    parts = re.findall(r"^([\w-]+)(?:\[[^]]*\])?==.*\n((?:    .*\n)+)", lock.read_text(), flags=re.M)
    return {name: set(re.findall(r"#(?: via|  ) +([\w-]+)", below)) for name, below in parts}


def pins(lock: Path) -> set[tuple[str, str]]:
    return set(re.findall(r"^([\w-]+)(?:\[[^]]*\])?==(\S+)", lock.read_text(), flags=re.M))
