"""Measures coverage only while code of this project runs: in its imports, and in tests and fixtures.

Code in Python takes two to four times as long while it is measured, including the code of libraries and of pytest.
Therefore slow tests, most cases of parametrised tests and the slowest functions of libraries run unmeasured, and so do
the remaining tests of a file once several in a row have run no further line or branch. The result is a lower bound of
the coverage. To use it: coverage run -m pytest -p tests.support.measurement
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import _bootstrap_external  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest

MOST_CASES = 3  # measured cases of a parametrised test
MOST_FRUITLESS = 8  # measured tests of a file in a row that run no further line or branch
MEASURED_PACKAGES = ("tasks", "orchestrator", "dashboards", "engram", "engram_command")
SERVERS = ("moto", "werkzeug")  # run in threads of this process
DRAWING = ("add_axes", "savefig")  # methods of matplotlib's figures


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Choose what is measured, if `coverage run` started this process.

    This hook is called before other plugins are loaded.
    """
    tracer: Any = sys.gettrace()
    if type(tracer).__module__.startswith("coverage"):
        measurement = Measurement(tracer, threading.gettrace())
        measurement.follow_imports()
        pluginmanager.register(measurement)


class Measurement:
    """Turns the measurement on and off. It is off at first."""

    def __init__(self, tracer: Any, tracer_of_threads: Any) -> None:
        self._tracer = tracer
        self._tracer_of_threads = tracer_of_threads
        self._cases: Counter[str] = Counter()  # by test function
        self._fruitless: Counter[str] = Counter()  # tests in a row, by file
        self._is_selected = False
        self._switch(False)

    def _switch(self, is_on: bool) -> None:
        tracer_of_threads: Any = self._measure_thread if is_on else None
        sys.settrace(self._tracer if is_on else None)
        threading.settrace(tracer_of_threads)

    @contextmanager
    def _switched(self, is_on: bool) -> Iterator[None]:
        """Turn the measurement on or off in this block and in threads that start in it."""
        was_on = sys.gettrace() is not None
        if is_on == was_on:
            yield
            return
        self._switch(is_on)
        try:
            yield
        finally:
            self._switch(was_on)

    def _measure_thread(self, *event: Any) -> Any:
        """Measure a thread, unless it belongs to a server. Called with the first event of a new thread."""
        target = getattr(threading.current_thread(), "_target", None)
        owner = type(getattr(target, "__self__", target))
        if owner.__module__.partition(".")[0] not in SERVERS:
            return self._tracer_of_threads(*event)
        sys.settrace(None)
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        function = item.nodeid.partition("[")[0]
        file = item.nodeid.partition("::")[0]
        self._cases[function] += 1
        is_early = self._cases[function] <= MOST_CASES and self._fruitless[file] < MOST_FRUITLESS
        self._is_selected = is_early and not item.get_closest_marker("slow")
        if not self._is_selected:
            return (yield)
        before = self._count_branches()
        result = yield
        self._fruitless[file] = 0 if self._count_branches() > before else self._fruitless[file] + 1
        return result

    def _count_branches(self) -> int:
        """The number of branches, which include lines, that have been run in all files."""
        return sum(map(len, self._tracer.data.values()))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        with self._switched(self._is_selected and fixturedef.func.__module__.startswith("tests.")):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self) -> Iterator[Any]:
        with self._switched(self._is_selected):
            return (yield)

    def follow_imports(self) -> None:
        """Measure the imports of this project, and neither those of libraries nor drawing."""
        loader = _bootstrap_external._LoaderBasics  # private
        execute = loader.exec_module

        def execute_module(loader: Any, module: ModuleType) -> None:
            with self._switched(module.__name__.partition(".")[0] in MEASURED_PACKAGES):
                execute(loader, module)
            if module.__name__ == "matplotlib.figure":
                for method in DRAWING:
                    setattr(module.Figure, method, self._leave_out(getattr(module.Figure, method)))

        loader.exec_module = execute_module

    def _leave_out(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            with self._switched(False):
                return function(*arguments, **options)

        return call
