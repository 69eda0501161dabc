"""Which modules of the repository import which, read from the source without importing anything."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ON_PATH = "tests/toys"  # a folder whose modules the tests import by their bare names
MODULE_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*\Z")


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the root of the repository, its text and the dotted names that it refers to."""

    path: str
    text: str
    references: frozenset[str]


def module_name(path: str) -> str:
    """The name by which a Python file is imported."""
    parts = PurePosixPath(path).with_suffix("").parts
    if path.startswith(f"{ON_PATH}/"):
        parts = parts[len(PurePosixPath(ON_PATH).parts) :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def read_sources(root: Path, paths: Iterable[str]) -> dict[str, Source]:
    """The Python files among the paths, by module name. A file that Python cannot parse refers to nothing."""
    sources = {}
    for path in paths:
        file = root / path
        if path.endswith(".py") and file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            name = module_name(path)
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            sources[name] = Source(path, text, frozenset(find_references(text, package)))
    return sources


def find_references(text: str, package: str) -> Iterator[str]:
    """Imported names, also inside functions, and strings that could be the name of a module."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, package)
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            name = node.value.partition(":")[0]  # "module:function" is how a task is found
            if MODULE_NAME.match(name):
                yield name


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def find_importers(sources: Mapping[str, Source], removed: Iterable[str] = ()) -> dict[str, set[str]]:
    """The modules that import each module. Importing a module also imports the packages that contain it."""
    modules = {*sources, *removed}
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for name, source in sources.items():
        for reference in source.references:
            for imported in _prefixes(reference):
                if imported in modules and imported != name:
                    importers[imported].add(name)
    return importers


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def find_distances(changed: Iterable[str], importers: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """The number of imports between each module and the nearest changed one. Modules without a path are left out."""
    distances = dict.fromkeys(changed, 0)
    waiting = deque(distances)
    while waiting:
        name = waiting.popleft()
        for importer in importers.get(name, ()):
            if importer not in distances:
                distances[importer] = distances[name] + 1
                waiting.append(importer)
    return distances
