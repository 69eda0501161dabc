"""The meanings of a config's fields: the docstring below each field in its class, read from the source.

    canaries: int = 100
    \"\"\"Training images that carry the feature.\"\"\"

One that begins with `Ours:` is of a setting that the paper does not have.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Mapping
from typing import Any

OURS = "Ours: "  # begins the meaning of a setting that is not the paper's


@functools.cache
def meanings(config: Any) -> Mapping[str, str]:
    """Field -> its meaning in one line; fields without a docstring are left out, as all are without the source."""
    found: dict[str, str] = {}
    for kind in reversed(config.__mro__):
        found.update(_field_docstrings(kind) if kind is not object else {})
    return found


def _field_docstrings(kind: Any) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # a class without a source
        return {}
    statements = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(statements)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
