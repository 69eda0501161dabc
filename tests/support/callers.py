"""Functions and classes of the product that only tests use."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Target = tuple[str, str]  # a module and a name in it
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Module:
    """A parsed module: its dotted name, and the targets of the names that it imports."""

    name: str
    tree: ast.Module
    imports: Mapping[str, frozenset[Target]]

    def definitions(self) -> Iterator[Definition]:
        """The public functions and classes at the top level, except those registered by a decorator."""
        for node in self.tree.body:
            if isinstance(node, Definition) and not node.name.startswith("_") and not _is_registered(node):
                yield node


def read_module(path: Path, root: Path) -> Module:
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: dict[str, set[Target]] = {}
    for local_name, target in _imports(tree):
        imports.setdefault(local_name, set()).add(target)  # several scopes of a module may use one name
    return Module(name, tree, {local_name: frozenset(targets) for local_name, targets in imports.items()})


def find_unused(defining: Sequence[Module], using: Sequence[Module], looked_up: Iterable[Target] = ()) -> list[str]:
    """The public functions and classes of `defining` to which nothing in `using` refers, as `module.name`.

    `looked_up` lists targets that the program finds by name, such as entry points.
    """
    exports = {module.name: module.imports for module in using}
    used: set[Target] = set()
    for target in looked_up:
        used |= _resolve(target, exports)
    for module in using:
        for target in _references(module):
            used |= _resolve(target, exports)
    unused = []
    for module in defining:
        for node in module.definitions():
            if (module.name, node.name) not in used:
                unused.append(f"{module.name}.{node.name}")
    return unused


def _is_registered(node: Definition) -> bool:
    """Whether a decorator other than Python's own registers it, as `@task(...)` and `@app.command()` do."""
    standard_decorators = {
        "dataclass",
        "cache",
        "lru_cache",
        "contextmanager",
        "wraps",
        "runtime_checkable",
        "total_ordering",
    }
    return any(_last_name(decorator) not in standard_decorators for decorator in node.decorator_list)


def _last_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _imports(tree: ast.Module) -> Iterator[tuple[str, Target]]:
    """Each imported name and its target. `import a.b` stands for the module `a`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                yield (alias.asname, (alias.name, "")) if alias.asname else (package, (package, ""))


def _references(module: Module) -> Iterator[Target]:
    """All references of the module, except references of a definition to itself."""
    for statement in module.tree.body:
        own_name = statement.name if isinstance(statement, Definition) else ""
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                yield from module.imports.get(node.id, ())
                if node.id != own_name:
                    yield module.name, node.id
            elif isinstance(node, ast.Attribute):
                yield from _attribute(module, node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from _named(node.value)


def _attribute(module: Module, node: ast.Attribute) -> Iterator[Target]:
    """`catalog.load` as the name `load` of the module that `catalog` stands for."""
    path: list[str] = []
    holder = node.value
    while isinstance(holder, ast.Attribute):
        path.insert(0, holder.attr)
        holder = holder.value
    if isinstance(holder, ast.Name):
        for target in module.imports.get(holder.id, ()):
            yield ".".join(part for part in (*target, *path) if part), node.attr


def _named(text: str) -> Iterator[Target]:
    """`package.module:function`, as entry points are written."""
    path, colon, name = text.partition(":")
    if colon and name.isidentifier():
        yield path, name


def _resolve(target: Target, exports: Mapping[str, Mapping[str, frozenset[Target]]]) -> set[Target]:
    """The target, and the definitions it stands for if its module only imports it."""
    targets: set[Target] = set()
    waiting = [target]
    while waiting:
        module, name = waiting.pop()
        if (module, name) not in targets:
            targets.add((module, name))
            waiting += exports.get(module, {}).get(name, ())
    return targets
