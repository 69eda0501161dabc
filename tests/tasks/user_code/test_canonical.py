"""The canonical form of Python source."""

from __future__ import annotations

import ast

import pytest

from tasks.user_code.canonical import canonical_form, parse, source_digest

SOURCE = '''
"""Layers."""
from __future__ import annotations
import math as m

class Block(Base, metaclass=Meta):
    """A block."""
    WIDTH: int = 0x20
    """Its width."""

    async def run(self, a, /, b=1.5, *rest: int, c, d=None, **more) -> None:
        """Run it."""
        async with a as x, b:
            return [y for y in rest if y], {**more, "é\\n": b"\\xff"}, f"{a!r:>{b}}{c=}", x[1:, ...], -1j

def f(n):
    match n:
        case None | [1, *_] | {"a": True, **kw} | Block(x=3) as z if z:
            n = lambda q: (yield q)
        case _:
            raise ValueError from None
    while (k := n) and not k is None:
        k += 10**9
'''


def digest(source: str) -> str:
    return source_digest(parse(source.encode(), "nets.py"))


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        (SOURCE.replace("import math as m", "import math as m  # for pi"), True),
        (SOURCE.replace("Layers", "Blocks").replace("A block", "One").replace("Its width", "W"), True),
        (SOURCE.replace('        """Run it."""\n', ""), True),
        (SOURCE.replace("0x20", "32").replace("b=1.5", "b = 1.50").replace('"a"', "'a'"), True),
        (SOURCE.replace("\n", "\r\n"), True),
        (SOURCE.replace("0x20", "33"), False),
        (SOURCE.replace("True", "1"), False),
        (SOURCE.replace("1.5", "1.5000001"), False),
        (SOURCE.replace("é", "e"), False),
        (SOURCE.replace("None |", "False |"), False),
        (SOURCE.replace("/, b", "b"), False),
        (SOURCE.replace("!r", "!s"), False),
    ],
)
def test_form_ignores_changes_without_effect(changed: str, is_same: bool) -> None:
    assert changed != SOURCE
    assert (digest(changed) == digest(SOURCE)) == is_same


def test_form_is_equal_in_every_python_version() -> None:
    """The digest that Python 3.11 gives; a version that adds fields to its syntax tree must not change it."""
    assert digest(SOURCE) == "bd74216e698dd9ca84b77c7fe61a4a54609e890d43e8eb0222237fbaceeaeb1d"


def test_form_leaves_out_fields_that_other_versions_add() -> None:
    tree = ast.parse("def f(): pass")
    before = canonical_form(tree)
    function = tree.body[0]
    function.__class__ = type("FunctionDef", (ast.FunctionDef,), {"_fields": (*function._fields, "type_params")})
    function.type_params = []  # type: ignore[attr-defined]
    assert canonical_form(tree) == before


def test_form_of_deep_source() -> None:
    deep = " + ".join(["x"] * 900)
    assert digest(deep) != digest(f"{deep} + x")


@pytest.mark.parametrize("source", [b"def f(:\n", b"x = '\x00'", b"\xff\xfe = 1"])
def test_source_that_cannot_be_parsed_is_named(source: bytes) -> None:
    with pytest.raises(ValueError, match=r"^nets\.py.* cannot be parsed: [^\n]+$"):
        parse(source, "nets.py")
