"""The user files that a module's behaviour depends on: its own file, and those it imports directly or indirectly.

A file is a user file unless it belongs to Python's standard library, an installed package or Engram, whose versions are
in the record of a result. `imports` reads the imports from the source without executing it. If the source does not
determine what an import loads, an error is raised. Data files that code opens are not covered.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path

from tasks.datasets.source import digest_of
from tasks.user_code import canonical
from tasks.user_code.imports import HiddenImport, Import, Reach, read_imports

RULE = "network: python source, 2"
INSTALLED = ("site-packages", "dist-packages")  # names of folders that contain packages
STANDARD_LIBRARY = tuple({f"{Path(sysconfig.get_path(name)).resolve()}/" for name in ("stdlib", "platstdlib")})
ROOT = Path(__file__).resolve().parents[2]
ENGRAM = ("dashboards", "engram", "engram_command.py", "orchestrator", "tasks")
SUFFIXES = (".py", *EXTENSION_SUFFIXES, ".pyc")


@dataclass(frozen=True)
class SourceFile:
    """A file of the user's code: its name relative to the import path, its path, and its digest.

    The digest is computed from the canonical form of Python source, and from the bytes of any other file.
    """

    name: str
    path: Path
    digest: str


@dataclass(frozen=True)
class _Module:
    """A module: its file (None for a namespace package), and its folders if it is a package."""

    name: str
    path: Path | None
    folders: tuple[str, ...] | None

    @property
    def file_name(self) -> str:
        """The name of the file, relative to the import path."""
        assert self.path is not None
        if self.folders is not None:
            parents = self.name.split(".")
        else:
            parents = self.name.split(".")[:-1]
        return "/".join([*parents, self.path.name])


def _is_installed_file(path: str) -> bool:
    """Return whether a file belongs to the standard library or to an installed package."""
    return path.startswith(STANDARD_LIBRARY) or bool(set(INSTALLED) & set(Path(path).parts))


@functools.cache
def is_user_file(path: str) -> bool:
    """Return whether a file is a user file: not part of the standard library, an installed package or Engram."""
    resolved = Path(path).resolve()
    if _is_installed_file(path) or _is_installed_file(str(resolved)):
        return False
    return not any(resolved.is_relative_to(ROOT / name) for name in ENGRAM)


def digest_of_files(files: Iterable[SourceFile]) -> str:
    """Return the digest of these files that enters keys, computed from their names and digests."""
    parts = []
    for file in sorted(files, key=lambda file: file.name):
        parts += [file.name.encode(), file.digest.encode()]
    return digest_of(RULE, parts)


def find_files(module: str) -> dict[str, SourceFile] | None:
    """Return the files that importing and using a module may execute, by name, or None if the module does not exist.

    For a user's module, these are all user files that it imports, directly or indirectly. For a module of an installed
    package, they are all Python files of that package. Raises ValueError for a file that cannot be read, or whose
    imports cannot be determined without running it.
    """
    importlib.invalidate_caches()
    root = _find(module)
    if root is None:
        return None
    if root.path is None:
        raise ValueError(f"{module!r} is a folder without Python source that could be pinned")
    return find_user_files(module) or _installed_files(module)


def find_user_files(module: str) -> dict[str, SourceFile]:
    """Return the user files that a user's module may execute, by name. Empty for any other module.

    Raises ValueError in the same cases as `find_files`.
    """
    files: dict[str, SourceFile] = {}
    waiting: deque[tuple[Import, Path | None]] = deque([(Import(module), None)])
    visited: set[tuple[Import, Path | None]] = set()
    while waiting:
        import_request, importer = waiting.popleft()
        if (import_request, importer) in visited:
            continue
        visited.add((import_request, importer))
        for reached_module in _reached(import_request, importer):
            if (
                reached_module.path is None
                or reached_module.file_name in files
                or not is_user_file(str(reached_module.path))
            ):
                continue
            file, imports = _read(reached_module)
            files[file.name] = file
            waiting.extend((imported, reached_module.path) for imported in imports)
    return files


def _read(module: _Module) -> tuple[SourceFile, list[Import]]:
    """Return a module's file, and the modules that it imports."""
    path = module.path
    assert path is not None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    if path.suffix != ".py":
        return SourceFile(module.file_name, path, hashlib.sha256(content).hexdigest()), []
    digest, imports = _analyse(content, str(path), module.name, module.folders is not None)
    return SourceFile(module.file_name, path, digest), list(imports)


@functools.lru_cache(maxsize=1000)
def _analyse(content: bytes, path: str, module: str, is_package: bool) -> tuple[str, tuple[Import, ...]]:
    """Return the digest of Python source and the modules that it imports.

    The result is cached, since one command needs the files of the same audit up to twenty times, and parsing takes 10
    to 50 ms. The content is part of the cache key, so edits are detected.
    """
    tree = canonical.parse(content, path)
    imports = []
    for statement in read_imports(tree, module, is_package):
        if isinstance(statement, HiddenImport):
            raise ValueError(
                f"{path}, line {statement.line}: {statement.call} {statement.effect}, so that its changes would go "
                "unnoticed; import the module by its name instead"
            )
        imports.append(statement)
    return canonical.source_digest(tree), tuple(imports)


def _reached(import_request: Import, importer: Path | None) -> Iterator[_Module]:
    """Yield the modules that an import executes: its parent packages, the module itself, and reachable submodules."""
    names = import_request.name.split(".")
    current_module = None
    for depth in range(1, len(names) + 1):
        current_module = _find(".".join(names[:depth]), importer)
        if current_module is None or (current_module.path is not None and not is_user_file(str(current_module.path))):
            return
        yield current_module
    if current_module is not None and import_request.reach != "module":
        yield from _submodules(current_module, import_request.reach)


def _submodules(package: _Module, reach: Reach) -> Iterator[_Module]:
    for folder in package.folders or ():
        if not is_user_file(folder):
            return
        for path in sorted(Path(folder).iterdir()):
            name = path.name.partition(".")[0]
            is_module = path.name.endswith(SUFFIXES) or (path.is_dir() and (path / "__init__.py").exists())
            if not is_module or not name.isidentifier() or name == "__init__":
                continue
            submodule = _from_spec(PathFinder.find_spec(f"{package.name}.{name}", [folder]))
            if submodule is not None:
                yield submodule
                if reach == "descendants":
                    yield from _submodules(submodule, reach)


def _find(name: str, importer: Path | None = None) -> _Module | None:
    """Return the module that Python would import under this name, without importing anything."""
    top, *inner = name.split(".")
    spec = _find_top(top)
    if spec is None and importer is not None:
        # Code often adds its own folder to the path before it imports another file from there.
        spec = PathFinder.find_spec(top, [str(importer.parent)])
    current_module = _from_spec(spec)
    for part in inner:
        if current_module is None or current_module.folders is None:
            return None
        current_module = _from_spec(PathFinder.find_spec(f"{current_module.name}.{part}", list(current_module.folders)))
    return current_module


def _find_top(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module without a spec, such as __main__
        return None


def _from_spec(spec: ModuleSpec | None) -> _Module | None:
    if spec is None:
        return None
    folders = spec.submodule_search_locations
    path = None
    if spec.has_location and spec.origin is not None:
        path = Path(spec.origin)
    elif folders is None:
        return None  # built into Python
    return _Module(spec.name, path, None if folders is None else tuple(folders))


def _installed_files(module: str) -> dict[str, SourceFile]:
    """Return all Python files in the outermost package of an installed module, or its own file."""
    top = _find(module.partition(".")[0])
    assert top is not None
    paths: Mapping[str, Path] = {}
    if top.folders is not None:
        paths = {
            f"{top.name}/{path.relative_to(folder).as_posix()}": path
            for folder in top.folders
            for path in Path(folder).rglob("*.py")
        }
    elif top.path is not None:
        paths = {top.path.name: top.path}
    files = {}
    for name, path in paths.items():
        files[name] = SourceFile(name, path, hashlib.sha256(path.read_bytes()).hexdigest())
    return files
