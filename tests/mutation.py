"""Change a module at one point after another, and list the changes that its tests do not notice.

    python -m tests.mutation tasks/numerics/seeds.py --tests tests/tasks/numerics/test_seeds.py
    python -m tests.mutation orchestrator/planning/plan.py --tests tests/orchestrator/planning/test_plan.py --sample 60

A copy of the repository is changed, never the repository; processes that tests start import the copy too. Each change
runs in a fork of one process that has imported the libraries, until its first test fails. What runs for much longer
than the unchanged module, or for ever, counts as noticed. A survivor is either equivalent to the original, or something
that no test says.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OURS = ("tasks", "orchestrator", "dashboards", "tests", "toys", "chains", "questions", "conftest")
TIMES, MORE = 5, 10  # a change may take so many times the CPU time of the unchanged module, and so many seconds more
WAITS = 120  # seconds by the clock after which nothing but a hang is left

EQUAL: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.LtE: ast.Lt, ast.GtE: ast.Gt}
NOT: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Eq: ast.NotEq}
NOT |= {ast.In: ast.NotIn, ast.Is: ast.IsNot}
NOT |= {other: one for one, other in NOT.items()}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.BitAnd: ast.BitOr}
COMPUTED |= {other: one for one, other in COMPUTED.items()}
COMPUTED |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
OPPOSITE = {"min": "max", "any": "all", "minimum": "maximum", "argmin": "argmax", "floor": "ceil", "append": "clear"}
OPPOSITE |= {other: one for one, other in OPPOSITE.items() if other != "clear"}
SYMMETRIC = ("min", "max", "minimum", "maximum")


class Mutant(NamedTuple):
    """A change: where it starts and ends in the source, in bytes, and what stands there instead."""

    line: int
    start: int
    end: int
    instead: str


def mutants(source: str) -> list[Mutant]:
    """Every change of the source, by place. Annotations, docstrings and the texts of f-strings stay as they are."""
    lines = [0]
    for line in source.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = set()
    for node, other in changes(ast.parse(source)):
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        text = ast.unparse(other)
        found.add(Mutant(node.lineno, start, end, f"({text})" if isinstance(other, ast.expr) else text))
    return sorted(found)


def changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """Each node that can be changed, and what it is changed into."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr) or node in annotations(tree):
            continue
        test = getattr(node, "test", None)
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr):
            yield test, ast.UnaryOp(ast.Not(), test)
        if isinstance(node, ast.stmt):
            yield from ((node, other) for other in of_statement(node))
        elif isinstance(node, ast.expr):
            yield from ((node, other) for other in of_expression(node))
        yield from changes(node)


def annotations(tree: ast.AST) -> list[ast.AST]:
    """The parts of a node that say types, or only how a class is made."""
    names = ("annotation", "returns")
    made = [each for each in getattr(tree, "decorator_list", []) if "dataclass" in ast.dump(each)]
    return [found for name in names if (found := getattr(tree, name, None)) is not None] + made


def of_statement(node: ast.stmt) -> Iterator[ast.stmt]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.Raise() | ast.Delete() | ast.Assert():
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.AugAssign(op=op) if type(op) in COMPUTED:
            yield ast.AugAssign(node.target, COMPUTED[type(op)](), node.value)
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def of_expression(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                for other in [found[type(op)] for found in (EQUAL, NOT) if type(op) in found]:
                    yield ast.Compare(node.left, [*ops[:place], other(), *ops[place + 1 :]], node.comparators)
        case ast.BoolOp(op=op):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
            yield from node.values
        case ast.BinOp(op=op) if type(op) in COMPUTED:
            yield ast.BinOp(node.left, COMPUTED[type(op)](), node.right)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node.operand
        case ast.IfExp():
            yield node.body
            yield node.orelse
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Call(func=func, args=[first, second, *rest]) if not isinstance(second, ast.Starred):
            if not isinstance(first, ast.Starred):
                if getattr(func, "attr", getattr(func, "id", "")) not in SYMMETRIC:
                    yield ast.Call(func, [second, first, *rest], node.keywords)
                yield first
        case ast.Call(func=ast.Name(id=name), args=[first]) if name in ("abs", "sorted", "set", "reversed", "round"):
            yield first
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in OPPOSITE and isinstance(node.func, ast.Name):
            yield ast.Call(ast.Name(OPPOSITE[name]), node.args, node.keywords)
        elif name in OPPOSITE and isinstance(node.func, ast.Attribute):
            yield ast.Call(ast.Attribute(node.func.value, OPPOSITE[name]), node.args, node.keywords)


class Workplace:
    """A copy of the repository in which one module is changed and its tests run."""

    def __init__(self, folder: Path, module: str, tests: Sequence[str]) -> None:
        self.folder, self.module, self.tests = folder, folder / module, tests
        left_out = shutil.ignore_patterns(".*", "__pycache__", "engram-store", "engram-runs", "build", "dist")
        shutil.copytree(ROOT, folder, ignore=left_out, dirs_exist_ok=True)
        self.source = self.module.read_bytes()
        self.written = int(time.time())
        self.seconds = resource.RLIM_INFINITY

    def write(self, source: bytes) -> None:
        self.module.write_bytes(source)
        self.written += 2  # what was compiled counts as current by the time, in seconds, and the size of its source
        os.utime(self.module, (self.written, self.written))

    def import_libraries(self) -> None:
        """Import what the tests import, but for what is ours: into this process, from which the others fork."""
        said = self.folder / "imported"
        self.run(said)
        for name in said.read_text().splitlines():
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    def run(self, say: Path | None = None) -> tuple[bool, float]:
        """Whether all tests pass, in a process of its own, and its CPU time in seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if not child:
            self.test(say)
        # The unchanged module sets the measure: however busy the machine is, it is waited for.
        deadline = math.inf if self.seconds < 0 else time.monotonic() + WAITS + 4 * self.seconds
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended[1] == 0, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    def test(self, say: Path | None) -> None:
        """Run the tests until one fails, and end."""
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (self.seconds, self.seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(self.folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(self.folder), str(self.folder / "tests/toys")])
        os.environ["OMP_NUM_THREADS"] = "1"
        sys.path[:] = [str(self.folder), *(path for path in sys.path if Path(path or ".").resolve() != ROOT)]
        for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
            del sys.modules[name]
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2) if say is None else (0,):
            os.dup2(nothing, stream)
        import pytest

        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *self.tests])
        if say is not None:
            ours = set(OURS) | {"__main__", "__mp_main__"}
            say.write_text("\n".join(name for name in sys.modules if name.split(".")[0] not in ours))
        os._exit(int(code))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", help="the file to change, below the repository's root")
    parser.add_argument("--tests", nargs="+", required=True, help="what pytest is asked to run")
    parser.add_argument("--sample", type=int, help="try so many changes, drawn evenly, instead of all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="engram-mutation-") as folder:
        return tried(Workplace(Path(folder), asked.module, asked.tests), asked.sample, asked.seed)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def tried(place: Workplace, sample: int | None, seed: int) -> int:
    """Try the changes one by one, tell those that survive, and the score."""
    place.import_libraries()
    passed, seconds = place.run()
    if not passed:
        say("the tests fail without any change")
        return 1
    place.seconds = int(TIMES * seconds) + MORE
    found = mutants(place.source.decode())
    chosen = found if sample is None or sample >= len(found) else sorted(random.Random(seed).sample(found, sample))
    survived = 0
    for each in chosen:
        place.write(place.source[: each.start] + each.instead.encode() + place.source[each.end :])
        if place.run()[0]:
            survived += 1
            before = " ".join(place.source[each.start : each.end].decode().split())
            say(f"{place.module.relative_to(place.folder)}:{each.line}: {before}  ->  {each.instead}")
    killed = len(chosen) - survived
    say(f"{killed} of {len(chosen)} changes noticed ({killed / max(len(chosen), 1):.1%}), of {len(found)} there are")
    return 0


if __name__ == "__main__":
    sys.exit(main())
