"""The user's code in keys: every file that it may execute, without comments and formatting."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from orchestrator.errors import SpecError
from orchestrator.executors.submission import factory_files
from orchestrator.planning import code, identity
from tasks.contract.job import Job
from tasks.external.model_file import ModelFile
from tasks.models import custom, modules
from tasks.models.catalog import DensityModel, Network
from tasks.models.custom import Factory
from tasks.user_code.acceptance import use_stand_ins
from tasks.user_code.closure import find_files
from tasks.user_code.loaded import UncoveredImport

MAIN = '''
"""The networks."""
import torch
from tasks.contract.job import task
{imports}

@task(version=1)
def make(*_):
{inside}
    return WIDTH
'''
HELPER = '''
"""Widths."""

WIDTH = 32  # units
'''
# Dependencies of the main module `mine` on the helper: imports of the module, of its function, other files.
ROUTES: dict[str, tuple[str, str, Mapping[str, str], str]] = {
    "helper in the same folder": ("from helper import WIDTH", "", {}, "helper.py"),
    "import as": ("import helper as h; WIDTH = h.WIDTH", "", {}, "helper.py"),
    "helper of a helper": ("from between import WIDTH", "", {"between.py": "from helper import WIDTH"}, "helper.py"),
    "import in a function": ("WIDTH = 1", "    from helper import WIDTH", {}, "helper.py"),
    "import under try": ("try:\n    from helper import WIDTH\nexcept ImportError:\n    WIDTH = 1", "", {}, "helper.py"),
    "import_module": ('import importlib\nWIDTH = importlib.import_module("helper").WIDTH', "", {}, "helper.py"),
    "__import__": ('WIDTH = __import__("helper").WIDTH', "", {}, "helper.py"),
    "circular": ("from helper import WIDTH", "", {"helper.py": HELPER + "import mine\n"}, "helper.py"),
    "submodule": ("from parts.helper import WIDTH", "", {"parts/__init__.py": ""}, "parts/helper.py"),
    "submodule as a name": (
        "from parts import helper; WIDTH = helper.WIDTH",
        "",
        {"parts/__init__.py": ""},
        "parts/helper.py",
    ),
    "package's init": ("from parts.other import X\nWIDTH = X", "", {"parts/other.py": "X = 1"}, "parts/__init__.py"),
    "star": (
        "from parts import *\nWIDTH = 1",
        "",
        {"parts/__init__.py": "__all__ = ['helper']"},
        "parts/helper.py",
    ),
    "relative import": (
        "from parts.other import WIDTH",
        "",
        {"parts/__init__.py": "", "parts/other.py": "from .helper import WIDTH"},
        "parts/helper.py",
    ),
    "relative import of a parent": (
        "from parts.deep.other import WIDTH",
        "",
        {"parts/__init__.py": "", "parts/deep/__init__.py": "", "parts/deep/other.py": "from ..helper import WIDTH"},
        "parts/helper.py",
    ),
    "namespace package": ("from spaces.helper import WIDTH", "", {}, "spaces/helper.py"),
    "computed below a package": (
        "from parts import WIDTH",
        "",
        {
            "parts/__init__.py": "import importlib\nfor name in ['helper']:\n"
            "    WIDTH = importlib.import_module(f'{__name__}.{name}').WIDTH"
        },
        "parts/helper.py",
    ),
    "folder put on the path": (
        "import sys; sys.path.insert(0, __file__.rpartition('/')[0]); from helper import WIDTH",
        "",
        {},
        "helper.py",
    ),
    "its own file": ("WIDTH = 32", "", {}, "mine.py"),
}
OWN = ("mine", "helper", "between", "parts", "spaces")  # the modules that the routes write


def network(folder: Path) -> str:
    return Network.parse("mine:make").pin({}).identity()


def density(folder: Path) -> str:
    return DensityModel.parse("mine:make").pin({}).identity()


def given(folder: Path) -> str:
    weights = folder / "weights.npz"
    if not weights.exists():
        np.savez(weights, x=np.zeros(1))
    return ModelFile.parse(f"mine:make+{weights}").pin({}).identity()


def own_task(folder: Path) -> str:
    """The key of a job of an audit of one's own, in a process that has not imported its module before."""
    identity.source_of.cache_clear()
    forget()
    return identity.key_of(Job(importlib.import_module("mine").make, None), ())


KINDS = (network, density, given, own_task)
CHANGES = {
    "constant": (lambda text: text.replace("32", "64"), True),
    "comment": (lambda text: text.replace("units", "hidden units") + "\n# the end\n", False),
    "docstring": (lambda text: text.replace("Widths", "All widths").replace("networks", "nets"), False),
    "formatting": (lambda text: text.replace("WIDTH = 32", "WIDTH = \\\n    0x20"), False),
}


def forget() -> None:
    for name in [
        name for name in sys.modules if name.split(".")[0] in ("mine", "helper", "between", "parts", "spaces")
    ]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path whose modules this process forgets afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget()
    yield tmp_path
    forget()


def write_route(folder: Path, route: str) -> Path:
    """Write the files of a route; return the one that is changed."""
    imports, inside, files, helper = ROUTES[route]
    texts = {helper: HELPER, **files, "mine.py": MAIN.format(imports=imports, inside=inside)}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / helper


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", ROUTES)
def test_key_changes_only_with_behaviour(folder: Path, route: str, kind: Callable[[Path], str]) -> None:
    helper = write_route(folder, route)
    before = kind(folder)
    text = helper.read_text()
    for name, (change, matters) in CHANGES.items():
        helper.write_text(change(text))
        assert (kind(folder) != before) == matters, name
    helper.write_text(text)
    (folder / "unrelated.py").write_text("X = 1")
    assert kind(folder) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("lines", "call"),
    [
        ("import importlib\nWIDTH = importlib.import_module('help' + 'er'[:2]).WIDTH", "importlib.import_module"),
        ("from importlib import import_module as load\nfor n in ['helper']:\n    load(n)", "importlib.import_module"),
        ("WIDTH = __import__('helper'.strip()).WIDTH", "__import__"),
        ("load = __import__\nWIDTH = load('helper').WIDTH", "__import__"),
        ("exec(open('helper.py').read())", "exec"),
        ("import runpy\nWIDTH = runpy.run_path('helper.py')['WIDTH']", "runpy.run_path"),
        ("from importlib.util import spec_from_file_location as s", "importlib.util.spec_from_file_location"),
    ],
)
def test_untraceable_import_is_refused(folder: Path, lines: str, call: str, kind: Callable[[Path], str]) -> None:
    write_route(folder, "helper in the same folder")
    if call.endswith("spec_from_file_location"):
        lines += "\nx = s('helper', 'helper.py')"
    text = f"{MAIN.format(imports='WIDTH = 1', inside='')}\ndef later():\n"
    (folder / "mine.py").write_text(text + "".join(f"    {line}\n" for line in lines.splitlines()))
    with pytest.raises((ValueError, SpecError), match=rf"^[^\n]*mine\.py, line \d+: {call} [^\n]+$"):
        kind(folder)


@pytest.mark.parametrize("position", ["module", "factory", "call"])
def test_import_beyond_the_digest_is_refused(folder: Path, position: str) -> None:
    """The code adds the folder to the path at run time, so no import can be followed into it."""
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "helper.py").write_text(HELPER)
    lines = f"import sys; sys.path.insert(0, {str(folder / 'elsewhere')!r}); from helper import WIDTH"
    places = {}
    for name in ("module", "factory", "call"):
        places[name] = lines if name == position else "WIDTH = 8"
    (folder / "mine.py").write_text(
        "import torch\n"
        f"{places['module']}\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(4, 2)\n"
        "    def forward(self, x):\n"
        f"        {places['call']}\n"
        "        return self.linear(x.flatten(1))\n"
        "def make(shape, classes):\n"
        f"    {places['factory']}\n"
        "    return Net()\n"
    )
    path = list(sys.path)
    for _ in range(2):  # also in a process that has imported it before
        with pytest.raises(UncoveredImport, match=r"^network mine:make.*elsewhere/helper\.py is imported when it runs"):
            modules.Method(
                modules.Module("mine:make", (1, 2, 2), 2), "__call__", "logits", torch.zeros(4, 1, 2, 2), (2,)
            )
        sys.path[:] = path


def test_compiled_modules_count_by_their_bytes(folder: Path) -> None:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    write_route(folder, "helper in the same folder")
    (folder / "helper.py").unlink()
    (folder / f"helper{suffix}").write_bytes(b"one")
    before = network(folder)
    (folder / f"helper{suffix}").write_bytes(b"two")
    assert network(folder) != before


def test_code_of_packages_is_excluded(folder: Path) -> None:
    write_route(folder, "helper in the same folder")
    files = find_files("mine")
    assert files is not None
    assert set(files) == {"mine.py", "helper.py"}
    assert all("torch/" in name for name in find_files("torch.version") or ())


def test_submission_includes_all_files_of_the_digest(folder: Path) -> None:
    write_route(folder, "relative import of a parent")
    assert set(factory_files([Network("mine:make")])) == {
        "mine.py",
        "parts/__init__.py",
        "parts/helper.py",
        "parts/deep/__init__.py",
        "parts/deep/other.py",
    }
    assert custom.sources(Factory.parse("mine:make")).keys() == factory_files([Network("mine:make")]).keys()


@pytest.mark.parametrize("kind", [Network, DensityModel, ModelFile])
def test_accepted_code_stands_in_for_earlier_code(folder: Path, kind: type[Network | ModelFile]) -> None:
    helper = write_route(folder, "helper in the same folder")
    np.savez(folder / "weights.npz", x=np.zeros(1))
    name = f"mine:make+{folder / 'weights.npz'}" if kind is ModelFile else "mine:make"
    before = kind.parse(name).pin({})
    source = code.read_code("network mine:make").digest
    helper.write_text(HELPER.replace("32", "16 + 16"))
    after = kind.parse(name).pin({})
    assert after.identity() != before.identity()
    with pytest.raises(ValueError, match="is not the one that was pinned"):
        before.pin({})

    stand_ins = code.stand_ins(after, {"network mine:make": (source, (source,))})
    with use_stand_ins(stand_ins):
        assert after.identity() == before.identity()
        assert before.pin({}).identity() == before.identity()
    np.savez(folder / "weights.npz", x=np.ones(1))
    if kind is ModelFile:
        with use_stand_ins(stand_ins), pytest.raises(ValueError, match="is not the one that was pinned"):
            before.pin({})
