"""Installation: the package sets of `make`, the wheel and its page, and the container."""

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
CORE = {Requirement(requirement).name for requirement in PROJECT["dependencies"]}


def test_container_copies_and_installs_engram(tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    steps = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            steps.append(line.split(maxsplit=1))
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
    assert ignore.index("!pyproject.toml") == 3  # after excluding everything, and the two locks
    last_by_word = dict(steps)  # of each word its last
    version = re.fullmatch(r"python:3\.(\d+)-slim", last_by_word["FROM"])
    assert version
    assert 11 <= int(version[1]) <= 13
    assert last_by_word["USER"] == "engram"
    assert last_by_word["ENTRYPOINT"] == '["engram"]'

    dependencies, own_install = [rest for word, rest in steps if word == "RUN" and rest.startswith("pip")]
    assert dependencies.endswith("--no-deps --require-hashes -r /tmp/requirements.lock")
    command = [
        sys.executable,
        "-m",
        *own_install.replace("/src", f"{tmp_path}/src").split(),
        "--target",
        f"{tmp_path}/there",
    ]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "there" / "engram_command.py").exists()
    assert "from engram_command import main\n" in (tmp_path / "there" / "bin" / "engram").read_text()
    for package in ("engram", "orchestrator", "tasks", "dashboards"):
        files = set()
        for file in (tmp_path / "src" / package).rglob("*.*"):
            if file.is_file():
                files.add(file.relative_to(tmp_path / "src"))
        assert [file for file in files if file.suffix != ".pyc" and not (tmp_path / "there" / file).exists()] == []


def test_readme_on_the_index_has_absolute_links() -> None:
    text = (ROOT / "README.md").read_text()
    for substitution in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    home = PROJECT["urls"]["Repository"]
    led = re.findall(r"\]\(([^)#]+)\)|(?:src|srcset)=\"([^\"]+)\"", re.sub(r"```.*?```", "", text, flags=re.S))
    assert [link for pair in led for link in pair if link and not link.startswith("https://")] == []
    assert all(url.startswith(home) for url in PROJECT["urls"].values())
    assert f"repository-code: {home}\n" in (ROOT / "CITATION.cff").read_text()


def test_new_wheel_replaces_only_the_old_one(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE", "engram_command.py"):
        shutil.copy(ROOT / name, tmp_path)
    for package in ("engram", "orchestrator", "tasks", "dashboards"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "dist" / "cache").mkdir(parents=True)
    kept_files = {"of_others-1.0-py3-none-any.whl", "engram_audit-0.0.9.tar.gz", "cache/notes"}
    for name in (*kept_files, "engram_audit-0.0.9-py3-none-any.whl"):
        (tmp_path / "dist" / name).write_text(name)
    make = ["make", "--old-file=.venv/ready", "wheel", f"BIN={Path(sys.executable).parent}"]
    subprocess.run(make, cwd=tmp_path, check=True, capture_output=True)
    present_files = set()
    for path in (tmp_path / "dist").rglob("*"):
        if path.is_file():
            present_files.add(str(path.relative_to(tmp_path / "dist")))
    assert kept_files | {f"engram_audit-{PROJECT['version']}-py3-none-any.whl"} == present_files
    assert all(name == (tmp_path / "dist" / name).read_text() for name in kept_files)


@pytest.mark.parametrize("machine", ["whole", "with a GPU", "nothing"])
def test_machine_without_gpu_downloads_the_smaller_set(machine: str, tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.lock", "requirements-cpu.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    nvidia = tools / "nvidia-smi"
    nvidia.write_text("#!/bin/sh\n" + ("echo GPU 0: NVIDIA H100\n" if machine == "with a GPU" else "exit 9\n"))
    nvidia.chmod(0o755)
    if machine == "whole":
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "ready").touch()
    env = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    env = {name: value for name, value in env.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-n", "quickstart"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    steps = done.stdout.splitlines()
    sync_steps = [line for line in steps if "pip sync" in line]
    assert (0 if machine == "whole" else 1) == len(sync_steps)
    if sync_steps:
        lock = sync_steps[0].split()[-1]
        assert ("requirements.lock" if machine == "with a GPU" else "requirements-cpu.lock") == lock
        announcement = next(line for line in steps if line.startswith("sed"))
        assert steps.index(announcement) < next(i for i, line in enumerate(steps) if " -m venv " in line)
        announced = subprocess.run(
            announcement, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        assert re.match(r"To download: \d\.\d GB", announced)
        forgets = steps.index("rm -f .venv/ready .venv/cpu")  # an installation that is broken off counts as none
        assert forgets < steps.index(sync_steps[0]) < steps.index(f"touch {mark_of(lock)}")


def mark_of(lock: str) -> str:
    """The mark file for the packages of a lock."""
    return ".venv/cpu" if "cpu" in lock else ".venv/ready"


def test_smaller_set_has_equal_versions_and_no_cuda() -> None:
    complete = pins(ROOT / "requirements.lock")
    small_environment = pins(ROOT / "requirements-cpu.lock")
    assert set() == small_environment - complete
    names = {name for name, _ in small_environment}
    assert names >= {"torch", "torchvision", "faiss-cpu", "ray", "mlflow", "hatchling", "editables"}
    assert set() == names & {"faiss-gpu", "triton", "nvidia-cusolver", "pytest", "mypy"}
    assert [name for name in names if name.endswith("-cu12")] == []


def test_both_sets_contain_quickstart_requirements_and_extras() -> None:
    for name in AUDITS:
        required = set()
        for extra in required_extras(find(name).audit.cells("quickstart")):
            required.add(extra.package)
        assert required <= packages_of("run"), name
    everything = {package for extra in OFFERED for package in packages_of(extra)} - {"faiss-gpu"}
    for lock in ("requirements.lock", "requirements-cpu.lock"):
        assert CORE | everything - {"faiss-cpu"} <= {name for name, _ in pins(ROOT / lock)}, lock


def test_missing_package_is_installed_by_its_extra() -> None:
    assert [extra for extra in (*COMMON, *EXTRAS) if extra.package not in packages_of(extra.name)] == []
    extra_packages = {extra.package for extra in (*COMMON, *EXTRAS)} | {"faiss-cpu", "faiss-gpu"}
    assert {package for extra in OFFERED for package in packages_of(extra)} == extra_packages
    assert packages_of("all") | {"faiss-gpu"} == extra_packages
    assert set(doctor.CORE) == CORE


@pytest.mark.parametrize("name", AUDITS)
def test_audits_extra_installs_its_presets_requirements(name: str) -> None:
    audit = find(name).audit
    required = set()
    for preset in audit.presets:
        for extra in required_extras(audit.cells(preset)):
            required.add(extra.package)
    assert required <= packages_of(name)


def test_conda_recipe_matches_the_run_extra() -> None:
    (rendered,) = Stage0Recipe.from_file(ROOT / "recipe" / "recipe.yaml").render(VariantConfig())
    recipe = rendered.recipe.to_dict()
    assert PROJECT["name"] == recipe["package"]["name"]
    assert PROJECT["version"] == str(recipe["package"]["version"])
    assert PROJECT["description"] == recipe["about"]["summary"]
    assert PROJECT["urls"]["Repository"] == recipe["about"]["repository"]
    assert [f"{name} = {value}" for name, value in PROJECT["scripts"].items()] == recipe["build"]["python"][
        "entry_points"
    ]
    expected = {"python": SpecifierSet(PROJECT["requires-python"])}
    for requirement in (*map(Requirement, PROJECT["dependencies"]), *requirements_of("run")):
        for name in on_conda(requirement):
            expected[name] = requirement.specifier
    run_requirements = [requirement.partition(" ") for requirement in recipe["requirements"]["run"]]
    assert expected == {name: SpecifierSet(specifier) for name, _, specifier in run_requirements}
    built_with = {Requirement(requirement).name for requirement in PYPROJECT["build-system"]["requires"]}
    assert {requirement.partition(" ")[0] for requirement in recipe["requirements"]["host"]} == {
        "python",
        "pip",
        *built_with,
    }


def on_conda(requirement: Requirement) -> list[str]:
    """The packages of conda-forge that replace one of the package index."""
    if requirement.name == "ray":
        return [f"ray-{extra}" for extra in sorted(requirement.extras)]
    return [{"torch": "pytorch", "matplotlib": "matplotlib-base"}.get(requirement.name, requirement.name)]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the source archive, in the same folder."""
    folder = tmp_path_factory.mktemp("released")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_release_files_are_sound(wheel: Path) -> None:
    archives = list(wheel.parent.glob("engram_audit-*"))
    assert {archive.suffix for archive in archives} == {".gz", ".whl"}
    command = [sys.executable, "-m", "twine", "check", "--strict", *archives]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="session")
def small_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and its requirements without any extra. Returns the folder of its commands."""
    folder = tmp_path_factory.mktemp("small")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for path in {
        path for distribution in distributions(PROJECT["dependencies"]) for path in top_level_paths(distribution)
    }:
        (packages / path.name).symlink_to(path)
    install = ("install", "--quiet", "--no-deps", "--no-index", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *install], check=True)
    return folder / "bin"


def distributions(required: Iterable[str]) -> list[metadata.Distribution]:
    """The installed distributions of these requirements and of all their dependencies."""
    machine: dict[str, metadata.Distribution] = {}
    ahead = [Requirement(requirement) for requirement in required]
    while ahead:
        requirement = ahead.pop()
        if requirement.name not in machine and (
            requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ):
            machine[requirement.name] = metadata.distribution(requirement.name)
            ahead += map(Requirement, machine[requirement.name].requires or ())
    return list(machine.values())


def top_level_paths(distribution: metadata.Distribution) -> set[Path]:
    """The top-level folders and files of a distribution."""
    inside = set()
    for file in distribution.files or ():
        if file.parts[0] not in ("..", "__pycache__"):
            inside.add(file.parts[0])
    return {Path(str(distribution.locate_file(name))) for name in inside}


@pytest.mark.slow
def test_wheel_alone_reads_a_store_and_names_extras(small_environment: Path, tmp_path: Path, engram: Here) -> None:
    fields = ("scale=tiny", "canaries=2")
    run = engram.json("run", "unique_feature", "--preset", "smoke", *fields, "--address", "none")["run"]

    def run_command(*arguments: str, code: int = 0, command: str = "engram") -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        done = subprocess.run(
            [small_environment / command, *arguments],
            cwd=engram.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=HANGING,
        )
        assert code == done.returncode, done.stderr + done.stdout
        return done.stdout if code == 0 else done.stderr

    assert "unique_feature" in run_command("-c", "import engram; print(*engram.audits())", command="python")
    assert "Run an audit" in run_command("--help")
    assert run_command("--version", command="engram-audit") == f"engram {PROJECT['version']}\n"
    assert "quickstart" in run_command("show", "text")
    assert run in run_command("runs")
    assert "M_w effect" in run_command("results", run, "summary")
    run_command("verify")
    for extra, arguments in {
        "report": ("report", run),
        "bucket": ("status", "--store", "s3://bucket/prefix"),
        "run": ("run", "unique_feature", "--preset", "smoke", "--store", "new"),
    }.items():
        line = run_command(*arguments, code=1).splitlines()[-1]
        assert f"pip install 'engram-audit[{extra}]'" in line
        assert "not installed" in line
    attempt = "import engram; engram.run('unique_feature', preset='smoke', store='new')"
    assert "engram-audit[run]" in run_command("-c", attempt, code=1, command="python").splitlines()[-1]


def requirements_of(extra: str) -> list[Requirement]:
    """The requirements of an extra, including those of the extras it names."""
    machine = []
    for requirement in map(Requirement, OFFERED[extra]):
        if requirement.name == PROJECT["name"]:
            machine += [nested for name in requirement.extras for nested in requirements_of(name)]
        else:
            machine.append(requirement)
    return machine


def packages_of(extra: str) -> set[str]:
    return {requirement.name for requirement in requirements_of(extra)}


def test_only_the_gpu_extra_installs_second_cuda() -> None:
    """The comments in the lock name the packages that require each package. pip resolves the same requirements."""
    assert [name for name in OFFERED if "faiss-gpu" in packages_of(name)] == ["gpu"]
    second = {}
    for name, origins in required_by(ROOT / "requirements.lock").items():
        if "-cu12" in name:
            second[name] = origins
    assert second
    assert set.union(*second.values()) - second.keys() == {"faiss-gpu"}


def required_by(lock: Path) -> dict[str, set[str]]:
    """The packages of a lock, and the packages that require each."""
    parts = re.findall(r"^([\w-]+)(?:\[[^]]*\])?==.*\n((?:    .*\n)+)", lock.read_text(), flags=re.M)
    result = {}
    for name, nested in parts:
        result[name] = set(re.findall(r"#(?: via|  ) +([\w-]+)", nested))
    return result


def pins(lock: Path) -> set[tuple[str, str]]:
    return set(re.findall(r"^([\w-]+)(?:\[[^]]*\])?==(\S+)", lock.read_text(), flags=re.M))
