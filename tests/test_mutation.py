"""What the tool that changes modules changes."""

import pytest

from tests.mutation import mutants


def changed(source: str) -> list[tuple[int, str]]:
    held = source.encode()
    return [
        (each.line, (held[: each.start] + each.instead.encode() + held[each.end :]).decode())
        for each in mutants(source)
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["(a <= b)", "(a >= b)"]),
        ("a in b", ["(a not in b)"]),
        ("x = 'é' + 3", ["x = ('é' - 3)", "x = 'é' + (2)", "x = 'é' + (4)"]),
        ("x = a and b", ["x = (a or b)", "x = (a)", "x = (b)"]),
        ("x = not a", ["x = (a)"]),
        ("x = True", ["x = (False)"]),
        ("x -= y", ["x += y"]),
        ("save(one, other)", ["pass", "(save(other, one))", "(one)"]),
        ("x = min(a, b)", ["x = (max(a, b))", "x = (a)"]),
        ("def f(n: int = 1) -> int:\n    return n", None),
        ("if held(x):\n    raise Held", ["if (not held(x)):\n    raise Held", "if held(x):\n    pass"]),
        ("'''1 < 2'''", []),
        ("x = f'{a + 1}'", []),
    ],
)
def test_a_module_is_changed_at_one_point_at_a_time(source: str, expected: list[str] | None) -> None:
    found = [text for _, text in changed(source)]
    if expected is None:
        head, body = source.split("\n")
        expected = [f"{head.replace('= 1', f'= ({n})')}\n{body}" for n in (0, 2)] + [f"{head}\n    return None"]
    assert sorted(expected) == sorted(found)


def test_a_change_has_the_line_where_it_starts() -> None:
    assert [1, 2, 2] == [line for line, _ in changed("x = not a\ny = b < c\n")]
