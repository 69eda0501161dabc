"""Change a module at one point after another, and list the changes that its tests do not notice.

    python -m tests.mutation tasks/numerics/statistics.py --decisions
    python -m tests.mutation orchestrator/planning/plan.py --tests tests/orchestrator/planning/test_plan.py --sample 60

A copy of the repository is changed, never the repository; processes that tests start import the copy too. Each change
is carried out in a fork of one process that has collected the tests, so that it costs little more than its first test
that fails. What runs for much longer than the unchanged module, or for ever, counts as noticed. A survivor is either
equivalent to the original, which `equivalent_mutants.txt` says with the reason, or something that no test says.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import contextlib
import gc
import importlib
import inspect
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
OURS = ("tasks", "orchestrator", "dashboards", "tests", "toys", "chains", "questions", "conftest")
TIMES = 5  # limits for a change: a multiple of the unchanged module's CPU time
MORE = 2  # plus seconds
IMPORTS = 4  # seconds that importing libraries may take
WAITS = 120  # seconds by the clock after which nothing but a hang is left
OF_EVERY_CLASS = {"__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__annotations__"}
POSTPONED = __future__.annotations.compiler_flag

EQUAL: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.LtE: ast.Lt, ast.GtE: ast.Gt}
NOT: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Eq: ast.NotEq}
NOT |= {ast.In: ast.NotIn, ast.Is: ast.IsNot}
NOT |= {second: first for first, second in NOT.items()}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.BitAnd: ast.BitOr}
COMPUTED |= {second: first for first, second in COMPUTED.items()}
COMPUTED |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
OPPOSITE = {"min": "max", "any": "all", "minimum": "maximum", "argmin": "argmax", "floor": "ceil", "append": "clear"}
OPPOSITE |= {second: first for first, second in OPPOSITE.items() if second != "clear"}
SYMMETRIC = ("min", "max", "minimum", "maximum")


class Mutant(NamedTuple):
    """A change: its start and end in the source, in bytes, the replacement, and the function that contains it."""

    line: int
    start: int
    end: int
    instead: str
    scope: str = ""


def mutants(source: str, decisions: bool = False) -> list[Mutant]:
    """Every change of the source, in order. Annotations, docstrings and the texts of f-strings are never changed.

    With `decisions`, only changes of comparisons, numbers, logic and the order of two arguments.
    """
    lines = [0]
    for line in source.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    changed = set()
    for scope, node, replacement in changes(ast.parse(source)):
        if decisions and isinstance(replacement, ast.stmt) and not isinstance(replacement, ast.AugAssign):
            continue
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        if (text := ast.unparse(replacement)) == ast.unparse(node):
            continue
        changed.add(Mutant(node.lineno, start, end, f"({text})" if isinstance(replacement, ast.expr) else text, scope))
    return sorted(changed)


def changes(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """Each node that can be changed, with its function and its replacement."""
    for node in ast.iter_child_nodes(tree):
        is_assertion = isinstance(node, ast.keyword) and node.arg == "strict"  # of zip
        if isinstance(node, ast.JoinedStr) or is_assertion or node in types_and_decorators(tree):
            continue
        test = getattr(node, "test", None)
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr):
            if getattr(test, "id", "") == "TYPE_CHECKING":
                continue  # imported only for types
            yield scope, test, ast.UnaryOp(ast.Not(), test)
        if isinstance(node, ast.stmt):
            yield from ((scope, node, replacement) for replacement in changed_statements(node))
        elif isinstance(node, ast.expr):
            yield from ((scope, node, replacement) for replacement in changed_expressions(node))
        is_named = isinstance(node, ast.FunctionDef | ast.ClassDef)
        yield from changes(node, f"{scope}.{getattr(node, 'name', '')}".lstrip(".") if is_named else scope)


def types_and_decorators(tree: ast.AST) -> list[ast.AST]:
    """The parts of a node that declare types or decorate a class."""
    names = ("annotation", "returns")
    decorators = getattr(tree, "decorator_list", [])
    return [part for name in names if (part := getattr(tree, name, None)) is not None] + decorators


def changed_statements(node: ast.stmt) -> Iterator[ast.stmt]:
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


def changed_expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=ops):
            for position, op in enumerate(ops):
                for operator in [operators[type(op)] for operators in (EQUAL, NOT) if type(op) in operators]:
                    yield ast.Compare(node.left, [*ops[:position], operator(), *ops[position + 1 :]], node.comparators)
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
        case ast.Constant(value=float(value)) if 0 < value < 1:
            yield ast.Constant(value / 2)
            yield ast.Constant(1 - value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Call(func=func, args=[first, second, *rest]) if not isinstance(second, ast.Starred):
            if not (isinstance(first, ast.Starred) or (is_text(first) and is_text(second))):
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


def is_text(node: ast.expr) -> bool:
    """Whether a node is a text. The order of two texts decides nothing."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class Workplace:
    """A copy of the repository in which one module is changed: in the file, and in the process that tests it."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder = folder
        self.module = folder / module
        self.name = ".".join(Path(module).with_suffix("").parts)
        left_out = shutil.ignore_patterns(".*", "__pycache__", "engram-store", "engram-runs", "build", "dist")
        shutil.copytree(ROOT, folder, ignore=left_out, dirs_exist_ok=True)
        self.source = self.module.read_bytes()
        self.written = int(time.time())

    def enter(self) -> None:
        """Import our modules from the copy, also in processes started from here."""
        os.chdir(self.folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(self.folder), str(self.folder / "tests/toys")])
        os.environ["OMP_NUM_THREADS"] = "1"
        sys.path[:] = [str(self.folder), *(path for path in sys.path if Path(path or ".").resolve() != ROOT)]
        for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
            del sys.modules[name]

    def change(self, mutant: Mutant) -> None:
        """Write the change for the processes that tests start, and carry it out in this one."""
        source = self.source[: mutant.start] + mutant.instead.encode() + self.source[mutant.end :]
        self.module.write_bytes(source)
        self.written += 2  # compiled files count as current by the time, in seconds, and the size of their source
        os.utime(self.module, (self.written, self.written))
        index = sum(
            (statement.end_lineno or statement.lineno) < mutant.line for statement in ast.parse(self.source).body
        )
        replace(sys.modules[self.name], ast.parse(source).body, index)

    def describe(self, mutant: Mutant) -> str:
        """A change by its module, function, original and replacement, as in `equivalent_mutants.txt`."""
        before = " ".join(self.source[mutant.start : mutant.end].decode().split())
        return f"{self.module.relative_to(self.folder)} {mutant.scope}: {before} -> {' '.join(mutant.instead.split())}"


def replace(module: ModuleType, body: Sequence[ast.stmt], index: int) -> None:
    """Execute one statement of a module again. Other holders of its function, class or constant see the new one.

    Functions and classes remain the objects that others have imported, with new code. Constants that depend on a
    changed constant of the module are computed again.
    """
    old = dict(vars(module))
    new = dict(old)
    for statement in body[index:]:
        if statement is body[index] or isinstance(statement, ast.Assign | ast.AnnAssign):
            tree = ast.Module([statement], [])
            exec(compile(tree, str(module.__file__), "exec", POSTPONED, dont_inherit=True), new)
    for name in new.keys() & old.keys() - {"__builtins__"}:
        was = old[name]
        now = new[name]
        if was is now:
            continue
        if isinstance(was, type):
            for attribute in vars(now).keys() - OF_EVERY_CLASS:
                if not replace_code(vars(was).get(attribute), vars(now)[attribute]):
                    with contextlib.suppress(AttributeError, TypeError):
                        setattr(was, attribute, vars(now)[attribute])
        elif not replace_code(was, now):
            replace_constant(module, name, was, now)


def replace_constant(module: ModuleType, name: str, was: object, now: object) -> None:
    """Replace a constant in the modules that imported it, and recompute the constants that they derived from it."""
    for holder in [entry for key, entry in sys.modules.items() if key.split(".")[0] in OURS]:
        is_holder = vars(holder).get(name) is was
        if is_holder:
            setattr(holder, name, now)
        source = getattr(holder, "__file__", None)
        if (
            holder is module
            or source is None
            or not (is_holder or any(entry is module for entry in vars(holder).values()))
        ):
            continue
        for entry in ast.parse(Path(source).read_bytes()).body:
            if isinstance(entry, ast.Assign | ast.AnnAssign) and name in names_read(entry):
                before = dict(vars(holder))
                recomputation = compile(ast.Module([entry], []), source, "exec", POSTPONED, dont_inherit=True)
                exec(recomputation, vars(holder))
                for derived, value in before.items():
                    if vars(holder)[derived] is not value:
                        replace_constant(holder, derived, value, vars(holder)[derived])


def names_read(tree: ast.AST) -> set[str]:
    """The names and attributes that a statement reads."""
    nodes = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            nodes.append(node)
    result = set()
    for node in nodes:
        if isinstance(node.ctx, ast.Load):
            result.add(getattr(node, "id", "") or getattr(node, "attr", ""))
    return result


def replace_code(was: Any, now: Any) -> bool:
    """Give a function the code and the defaults of another one; whether these are functions."""
    was, now = (getattr(holder, "fget", None) or getattr(holder, "func", holder) for holder in (was, now))
    was = inspect.unwrap(getattr(was, "__func__", was))
    now = inspect.unwrap(getattr(now, "__func__", now))
    if not (inspect.isfunction(was) and inspect.isfunction(now)):
        return False
    was.__code__ = now.__code__
    was.__defaults__ = now.__defaults__
    was.__kwdefaults__ = now.__kwdefaults__
    return True


class Trial:
    """A pytest plugin: after collecting the tests, it runs them for each change in a fork until one fails.

    Tests that noticed other changes come first, then the fastest. Tests longer than `limit` seconds are left out.
    """

    def __init__(self, workplace: Workplace, mutants: Sequence[Mutant], limit: float) -> None:
        self.place = workplace
        self.chosen = mutants
        self.limit = limit
        self.noticed: Counter[str] = Counter()
        self.said = workplace.folder / "said"

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """End at the first failure, before drawing a traceback, which takes longer than most tests."""
        import pytest

        failed = call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception)
        if failed and not item.get_closest_marker("xfail"):
            self.said.write_text(item.nodeid)
            os._exit(1)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not self.run(session.items, None):
            say(f"the tests fail without any change: {self.said.read_text()}")
            return True
        first, modules = json.loads(self.said.read_text())
        for name in [self.place.name, *modules]:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        gc.freeze()  # a collection in a fork would copy all of this process's memory
        # The imports of the first test are not its own time, so the tests are measured again.
        items = [item for item in session.items if first[item.nodeid] <= self.limit + IMPORTS]
        self.run(items, None)
        measured, _ = json.loads(self.said.read_text())
        items = [item for item in items if measured[item.nodeid] <= self.limit]
        items.sort(key=lambda item: measured[item.nodeid])
        limit = int(TIMES * sum(measured[item.nodeid] for item in items)) + MORE
        self.try_mutants(self.leave_out_failing(items, limit), limit)
        return True

    def leave_out_failing(self, items: Sequence[pytest.Item], limit: int) -> Sequence[pytest.Item]:
        """The tests that pass under the limit of processor time without any change.

        Processes started by tests inherit the limit, so some tests always fail and cannot notice a change.
        """
        while not self.run(items, None, limit) and self.said.exists():
            failed = self.said.read_text()
            say(f"left out, as it fails under the limit of CPU time without any change: {failed}")
            items = [item for item in items if item.nodeid != failed]
        return items

    def try_mutants(self, items: Sequence[pytest.Item], limit: int) -> None:
        """Try the changes in turn, print the survivors, and finally the score."""
        equivalent = set()
        for line in EQUIVALENT.read_text().splitlines():
            equivalent.add(line.split("  # ")[0])
        survived = excused = 0
        for mutant in self.chosen:
            items = sorted(items, key=lambda item: -self.noticed[item.nodeid])
            if not self.run(items, mutant, limit):
                continue
            survived += 1
            excused += (description := self.place.describe(mutant)) in equivalent
            if description not in equivalent:
                say(f"{mutant.line}: {description}")
        noticed = len(self.chosen) - survived
        relevant = len(self.chosen) - excused
        heading = (
            f"{self.place.module.relative_to(self.place.folder)}: {len(self.chosen)} changes, {excused} equivalent"
        )
        say(f"{heading}; noticed {noticed} of {relevant} ({noticed / max(relevant, 1):.1%})")

    def run(self, items: Sequence[pytest.Item], mutant: Mutant | None, limit: int = 0) -> bool:
        """Run the tests in a fork with `limit` seconds of processor time (0: no limit). Returns whether all pass."""
        self.said.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            self.test(items, mutant, limit)
        # The time of the unchanged module sets the limit, with a margin for busy machines.
        deadline = time.monotonic() + WAITS + 4 * limit if limit else math.inf
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests started
        if ended[1] and mutant and self.said.exists():
            self.noticed[self.said.read_text()] += 1
        return bool(ended[1] == 0)

    def test(self, items: Sequence[pytest.Item], mutant: Mutant | None, limit: int) -> None:
        """Run the tests until one fails, and end."""
        os.setpgid(0, 0)
        if limit:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        try:
            if mutant:
                self.place.change(mutant)
            seconds = {}
            for item, following in zip(items, [*items[1:], None], strict=True):
                before = time.process_time()
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                seconds[item.nodeid] = time.process_time() - before
            self.said.write_text(json.dumps([seconds, [*sys.modules]]))
        except BaseException:
            os._exit(1)
        os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", help="the file to change, below the repository's root")
    parser.add_argument("--tests", nargs="+", help="arguments for pytest; by default the module's own tests")
    parser.add_argument("--decisions", action="store_true", help="change comparisons, numbers and logic only")
    parser.add_argument("--fast", type=float, default=math.inf, help="leave out tests of more seconds than these")
    parser.add_argument("--sample", type=int, help="try this number of changes, drawn evenly, instead of all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parsed = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    module = Path(parsed.module)
    tests = parsed.tests or [f"tests/{module.parent}/test_{module.name}"]
    with tempfile.TemporaryDirectory(prefix="engram-mutation-") as folder:
        workplace = Workplace(Path(folder), parsed.module)
        candidates = mutants(workplace.source.decode(), parsed.decisions)
        is_complete = parsed.sample is None or parsed.sample >= len(candidates)
        if is_complete:
            selected = candidates
        else:
            selected = sorted(random.Random(parsed.seed).sample(candidates, parsed.sample))
        workplace.enter()
        import pytest

        options = [
            "-q",
            "--no-header",
            "--capture=no",
            "--assert=plain",
            "-p",
            "no:cacheprovider",
            "--hypothesis-seed=0",
        ]
        return int(pytest.main([*options, *tests], [Trial(workplace, selected, parsed.fast)]))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
