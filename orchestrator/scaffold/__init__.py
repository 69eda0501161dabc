"""Creates a new single-file audit and its test from templates that work immediately."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from orchestrator.errors import EngramError, SpecError
from orchestrator.spec import audits

HERE = Path(__file__).parent
NAME = re.compile(r"[a-z][a-z0-9_]{1,29}")
OURS = "tasks.audits."


@dataclass(frozen=True)
class NewFiles:
    """The files that were written and the commands to run next."""

    files: tuple[Path, ...]
    following: tuple[str, ...]


def new_audit(name: str, folder: Path | None = None) -> NewFiles:
    """Write an audit with this name, its test and, outside Engram's checkout, a package that contains it.

    Without `folder`, and inside the checkout from which engram runs, the audit goes to `tasks/audits` and its test to
    `tests/tasks/audits`. Elsewhere, both go to the current folder as a package. Nothing is overwritten. Raises
    SpecError for an invalid name, a name taken by an audit or module, or an existing file, and EngramError if a file
    cannot be written.
    """
    _check_name(name)
    checkout = None
    if folder is None:
        checkout = _checkout()
    if checkout is not None:
        audit, test = checkout
        texts = {
            audit / f"{name}.py": _fill_template("audit", name, OURS),
            test / f"test_{name}.py": _fill_template("test", name, OURS),
        }
        following = [f"engram run {name} --preset smoke", *_test_commands(test / f"test_{name}.py", "make test")]
    else:
        folder = Path() if folder is None else folder
        texts = {
            folder / f"{name}.py": _fill_template("audit", name, ""),
            folder / f"test_{name}.py": _fill_template("test", name, ""),
            folder / "pyproject.toml": _fill_template("package", name, ""),
        }
        following = [
            f"pip install --no-deps --editable {_near(folder)}",
            f"engram run {name} --preset smoke",
            *_test_commands(folder / f"test_{name}.py", "python -m pip install pytest"),
        ]
    for path in texts:
        try:
            is_taken = path.exists()
        except OSError as error:  # the name is one that no file can have
            raise SpecError(f"{path} cannot be written: {error.strerror or error}") from None
        if is_taken:
            raise SpecError(f"{_near(path)} exists; give another name, or another folder by --into")
    if folder is not None:
        _check_module(name)
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise EngramError(f"{path} cannot be written: {error.strerror}") from None
    return NewFiles(tuple(texts), tuple(following))


def _check_name(name: str) -> None:
    """Raise SpecError unless this is a valid and unused audit name."""
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise SpecError(
            f"NAME is {name!r}; it must be 2 to 30 small letters, digits and underscores, begin with a letter, and not "
            "be a Python keyword"
        )
    if name in audits.names():
        raise SpecError(f"an audit {name!r} exists; give another name")


def _check_module(name: str) -> None:
    """Raise SpecError if a module of this name would hide another one or be hidden by it."""
    if name in sys.stdlib_module_names:
        raise SpecError(f"NAME is {name!r}, a module of Python, which the audit would hide; give another name")
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None:  # a folder without __init__.py hides nothing
        raise SpecError(
            f"NAME is {name!r}, an installed module ({spec.origin}), which the audit would hide; give another name"
        )


def _test_commands(test: Path, pytest: str) -> Iterator[str]:
    """Yield the commands that run the test, preceded by one that installs pytest if it is missing."""
    if importlib.util.find_spec("pytest") is None:
        yield pytest
    yield f"python -m pytest {_near(test)}"


def _checkout() -> tuple[Path, Path] | None:
    """Return the folders for audits and their tests in the checkout from which engram runs. Returns None outside it."""
    import tasks.audits

    folder = Path(tasks.audits.__path__[0]).resolve()
    root = folder.parents[1]
    test = root / "tests" / "tasks" / "audits"
    is_inside = root in (Path.cwd(), *Path.cwd().parents)
    if is_inside and test.is_dir():
        return (folder, test)
    return None


def _fill_template(template: str, name: str, package: str) -> str:
    """Fill in a template for this audit, with imports in the usual order for the checkout or for a package."""
    config = "".join(part.capitalize() for part in name.split("_")) + "Config"
    own_import = "import orchestrator\n"
    library_imports = "import pyarrow as pa\nimport pytest\n"
    fields = {
        "name": name,
        "module": f"{package}{name}",
        "words": " ".join(filter(None, name.split("_"))),
        "config": config,
        "classes": "\n".join(f"    {class_name}," for class_name in sorted(("NoSettings", config))),
        "gap": "\n" if package else "",
        "imports": f"{library_imports}\n{own_import}".rstrip() if package else f"{own_import}{library_imports}",
    }
    return Template((HERE / f"{template}.template").read_text(encoding="utf-8")).substitute(fields)


def _near(path: Path) -> str:
    """Return the path relative to the current folder if possible."""
    try:
        return str(Path(os.path.realpath(path)).relative_to(Path.cwd()))  # resolve() rejects circular links
    except ValueError:
        return str(path)
