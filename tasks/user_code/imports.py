"""Determine which modules Python source imports, from its syntax tree and without executing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Reach = Literal["module", "children", "descendants"]

IMPORTERS = ("importlib.import_module", "builtins.__import__", "importlib.__import__")
# Calls that load code without naming it in an import, and what they do.
LOADERS: Mapping[str, str] = {
    "builtins.exec": "runs code from text",
    "builtins.execfile": "runs code from a file",
    "runpy.run_path": "runs a file",
    "runpy.run_module": "runs a module",
    "imp.load_source": "imports a file",
    "importlib.util.spec_from_file_location": "imports a file",
    "importlib.util.spec_from_loader": "imports by a loader",
    "importlib.util.module_from_spec": "imports by a loader",
    "importlib.machinery.SourceFileLoader": "imports a file",
    "importlib.machinery.SourcelessFileLoader": "imports a file",
    "importlib.machinery.ExtensionFileLoader": "imports a file",
    "pkgutil.resolve_name": "imports a module whose name is computed",
    "ctypes.CDLL": "loads a library",
    "ctypes.cdll.LoadLibrary": "loads a library",
    "torch.hub.load": "runs code of a repository",
    "torch.ops.load_library": "loads a library",
    "torch.utils.cpp_extension.load": "compiles files",
}
WATCHED = ("builtins", "ctypes", "imp", "importlib", "pkgutil", "runpy", "torch")
BUILTINS = ("exec", "execfile", "__import__")


@dataclass(frozen=True)
class Import:
    """An imported module by its absolute name: on its own, with its direct submodules, or with all submodules."""

    name: str
    reach: Reach = "module"


@dataclass(frozen=True)
class HiddenImport:
    """A call that loads code which cannot be determined from the source."""

    line: int
    call: str
    effect: str


def read_imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[Import | HiddenImport]:
    """Yield all imports in a module's source, including those in functions, in `if` and `try`, and by `import_module`.

    `from package import name` may import the submodule `package.name`, and `from package import *` any of the
    submodules. The caller determines which of them exist. A module name may be computed if it begins with a literal
    package name, as in `import_module(f"{__name__}.{kind}")`.
    """
    package = module if is_package else module.rpartition(".")[0]
    aliases = _aliases(tree)
    own_names = {"__name__": module, "__package__": package}
    callee_ids: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from_import(node, package)
        elif isinstance(node, ast.Call):
            name = _qualified_name(node.func, aliases)
            if name in IMPORTERS:
                callee_ids.add(id(node.func))
                yield _dynamic_import(node, name, own_names)
        elif (
            isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in callee_ids
        ):
            name = _qualified_name(node, aliases)
            if name in LOADERS:
                yield HiddenImport(node.lineno, _shown(name), LOADERS[name])
            elif name in IMPORTERS:
                yield HiddenImport(node.lineno, _shown(name), "imports modules whose names are computed")


def _from_import(node: ast.ImportFrom, package: str) -> Iterator[Import]:
    base = _absolute_name(node.module or "", node.level, package)
    if base is None:
        return
    for alias in node.names:
        if alias.name == "*":
            yield Import(base, "children")
        else:
            yield Import(base)
            yield Import(f"{base}.{alias.name}")


def _absolute_name(name: str, level: int, package: str) -> str | None:
    """Return the absolute form of a relative name (`level` dots and a name) in a package.

    Returns None if there are too many dots.
    """
    if level == 0:
        return name
    parents = package.split(".") if package else []
    if level > len(parents):
        return None
    return ".".join([*parents[: len(parents) - level + 1], *([name] if name else [])])


def _dynamic_import(node: ast.Call, call: str, own_names: Mapping[str, str]) -> Import | HiddenImport:
    hidden = HiddenImport(node.lineno, _shown(call), "imports a module whose name is computed")
    if not node.args:
        return hidden
    text, is_whole = _written_part(node.args[0], own_names)
    level = len(text) - len(text.lstrip("."))
    if level and call == "importlib.import_module":
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        anchor = node.args[1] if len(node.args) > 1 else keywords.get("package")
        base, is_known = _written_part(anchor, own_names) if anchor is not None else ("", False)
        if not is_known:
            return hidden
        absolute = _absolute_name(text.lstrip("."), level, base)
        if absolute is None:
            return hidden
        text = absolute if text.strip(".") else f"{absolute}."
    if is_whole:
        # `__import__("a", fromlist=["b"])` imports the submodule a.b, and a level counts dots.
        plain = call == "importlib.import_module" or (len(node.args) == 1 and not node.keywords)
        return Import(text.rstrip("."), "module" if plain else "children")
    parent, dot, _ = text.rpartition(".")
    return Import(parent, "descendants") if dot and parent else hidden


def _written_part(node: ast.expr, own_names: Mapping[str, str]) -> tuple[str, bool]:
    """Return the literal text at the start of an expression, and whether it is the whole expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, True
    if isinstance(node, ast.Name) and node.id in own_names:
        return own_names[node.id], True
    if isinstance(node, ast.FormattedValue) and node.conversion == -1 and node.format_spec is None:
        return _written_part(node.value, own_names)
    parts: list[ast.expr] = []
    if isinstance(node, ast.JoinedStr):
        parts = node.values
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    text = ""
    for part in parts:
        literal, is_whole = _written_part(part, own_names)
        text += literal
        if not is_whole:
            return text, False
    return text, bool(parts)


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Map the names that a source gives to modules and functions that may load code to their qualified names."""
    aliases = {name: f"builtins.{name}" for name in BUILTINS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                if top in WATCHED:
                    aliases[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] in WATCHED:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return aliases


def _qualified_name(node: ast.expr, aliases: Mapping[str, str]) -> str:
    """Return the qualified name of an expression such as `il.import_module`. Empty if it is not watched."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _qualified_name(node.value, aliases)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def _shown(name: str) -> str:
    return name.removeprefix("builtins.")
