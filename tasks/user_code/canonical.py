"""The canonical form of Python source: equal for sources that differ only in comments, docstrings and formatting."""

from __future__ import annotations

import ast
import hashlib

# Fields that do not affect a program: `u"text"` equals "text", and comments are not code.
UNSEEN = ("kind", "type_comment", "type_ignores")


def source_digest(tree: ast.Module) -> str:
    """Return the SHA-256 of the canonical form of parsed source."""
    return hashlib.sha256(canonical_form(tree).encode()).hexdigest()


def parse(content: bytes, file: str) -> ast.Module:
    """Parse Python source. Raises ValueError, naming the file, if it cannot be parsed."""
    try:
        return ast.parse(content)
    except SyntaxError as error:
        raise ValueError(f"{file}, line {error.lineno or 1}, cannot be parsed: SyntaxError: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{file} cannot be parsed: {error}") from None


def canonical_form(tree: ast.AST) -> str:
    """Return a syntax tree as text, which is the same in Python 3.11 to 3.13.

    `ast.dump` differs between versions, which add fields such as `type_params` and `default_value` and print defaults
    differently. Here, empty fields are left out, so that source without new syntax has the same form everywhere.

    Bare strings have no effect, so docstrings are omitted. Code that reads `__doc__` depends on them. This is rare and
    accepted, since a corrected docstring would otherwise retrain every network.
    """
    texts: list[str] = []
    waiting: list[object] = [tree]  # no recursion: a sum of a thousand terms is as deep as Python's stack
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Text):
            texts.append(item)
        elif isinstance(item, ast.AST):
            waiting.extend(reversed(_parts_of_node(item)))
        elif isinstance(item, list):
            waiting.extend([_Text("]"), *reversed(item), _Text("[")])
        else:
            texts.append(_constant(item))
    return " ".join(texts)


class _Text(str):
    """A piece of the canonical form, as opposed to a string in the source."""


def _parts_of_node(node: ast.AST) -> list[object]:
    """Return the pieces of a node's form and the values of its fields, in order."""
    parts: list[object] = [_Text(f"{type(node).__name__}(")]
    for name in sorted(node._fields):
        value = getattr(node, name, None)
        if isinstance(value, list):
            value = [part for part in value if not (_is_bare_string(part) or _is_empty_piece(node, part))]
        is_empty = value == [] or (value is None and not isinstance(node, ast.Constant))
        if name not in UNSEEN and not is_empty:
            parts += [_Text(f"{name}="), value]
    return [*parts, _Text(")")]


def _constant(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return hex(value)  # `repr` rejects integers with more than 4,300 digits
    # `repr` of text depends on the version's Unicode tables; `ascii` does not.
    return f"{type(value).__name__} {value!a}"


def _is_bare_string(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_empty_piece(node: ast.AST, part: object) -> bool:
    """Return whether a part of an f-string is an empty string, which Python 3.12 adds at the end of a nested format."""
    return isinstance(node, ast.JoinedStr) and isinstance(part, ast.Constant) and part.value == ""
