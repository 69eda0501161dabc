"""The command line as users have it: `engram` in its own folder and process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest

from tests.support import forks
from tests.support.forks import Fork
from tests.support.waiting import HANGING, wait_until

ROOT = forks.ROOT
PATHS = forks.PATHS
OWN_VARIABLES = ("ENGRAM_STORE", "ENGRAM_RUNS", "ENGRAM_DATA", "RAY_ADDRESS", "FORCE_COLOR")
STARTED: list[subprocess.Popen[str] | Fork] = []  # by this test; a failed test may leave some waiting


class CommandResult(NamedTuple):
    """The output of a command and its exit code."""

    stdout: str
    stderr: str
    returncode: int


class Shell:
    """Runs `engram` in a folder. `env` is its environment, without the tester's own settings.

    Its processes are forked from one that has imported torch, unless they are `fresh` or their path puts other folders
    first.
    """

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        self.folder = folder
        self.fresh = fresh
        inherited = {}
        for name, value in os.environ.items():
            if name not in OWN_VARIABLES:
                inherited[name] = value
        # Only tests about pages and tracking turn these on.
        quiet = {"ENGRAM_REPORT": "no", "MLFLOW_TRACKING_URI": "off"}
        self.env = inherited | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"} | quiet

    def __call__(self, *arguments: str, code: int = 0) -> CommandResult:
        run = self.start(*arguments)
        result = CommandResult(*run.communicate(timeout=HANGING), run.returncode)
        assert code == result.returncode, result.stderr + result.stdout
        return result

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str] | Fork:
        return self.python("-m", "orchestrator", *arguments)

    def python(self, *arguments: str, **more: Any) -> subprocess.Popen[str] | Fork:
        """`python` with these arguments, started in the folder."""
        forked = not self.fresh and self.env["PYTHONPATH"].startswith(PATHS)
        make = Fork if forked else subprocess.Popen
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        run = make([sys.executable, *arguments], text=True, cwd=self.folder, env=self.env, **streams)
        STARTED.append(run)
        return run

    def script(self, code: str, *arguments: str) -> CommandResult:
        """The output of `python -c` with this code."""
        run = self.python("-c", code, *arguments)
        return CommandResult(*run.communicate(timeout=HANGING), run.returncode)

    def results(self) -> list[Path]:
        return results(self.folder)

    def await_results(self, count: int, run: subprocess.Popen[str] | Fork) -> None:
        """Wait until `count` results are stored by a run that has not ended."""
        self.until(lambda: len(self.results()) >= count, run)

    def await_begun(self, count: int, run: subprocess.Popen[str] | Fork) -> None:
        """Wait until `count` of the toys' parts have begun to wait for `go`, in a run whose `folder` is this one."""
        log = self.folder / "began.log"
        self.until(lambda: log.exists() and len(log.read_text().splitlines()) >= count, run)

    def go(self) -> None:
        """Release the waiting parts of the toys."""
        (self.folder / "go").touch()

    def until(self, condition: Callable[[], bool], run: subprocess.Popen[str] | Fork | None = None) -> None:
        """Wait until a condition is true while a run has not ended. Only a hanging run reaches the time limit."""

        def holds() -> bool:
            if condition():
                return True
            assert run is None or run.poll() is None, run.communicate()
            return False

        wait_until(holds)


def refusals(stderr: str) -> list[str]:
    """The lines of stderr, without the progress lines that a busy machine adds."""
    result = []
    for line in stderr.strip().splitlines():
        if line not in ("reading data", "planning"):
            result.append(line)
    return result


class Here:
    """`engram` in a folder, like `Shell`, but in this process: it starts no interpreter and loads no torch.

    `env` extends the environment of this process, without the tester's settings.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env: dict[str, str] = {}

    def __call__(self, *arguments: str, code: int = 0) -> CommandResult:
        result = self.run(*arguments)
        assert code == result.returncode, result
        return result

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def into(self, path: str, *arguments: str) -> CommandResult:
        """Run the command with its standard output opened on a path."""
        from orchestrator.cli.streams import Output

        with open(path, "wb") as file:
            return self.run(*arguments, stdout=io.TextIOWrapper(Output(file.fileno(), "w", closefd=False)))

    def run(self, *arguments: str, stdout: TextIO | None = None) -> CommandResult:
        """Run the command, whatever its exit code."""
        from orchestrator.cli import main

        out = io.StringIO()
        err = io.StringIO()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with pytest.MonkeyPatch.context() as patch, contextlib.chdir(self.folder):
            patch.setattr(sys, "argv", ["engram", *arguments])
            for name in OWN_VARIABLES:
                patch.delenv(name, raising=False)
            for name, value in self.env.items():
                patch.setenv(name, value)
            try:
                with (
                    contextlib.redirect_stdout(stdout or out),
                    contextlib.redirect_stderr(err),
                    pytest.raises(SystemExit) as end,
                ):
                    main()
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        assert isinstance(end.value.code, int)
        return CommandResult(out.getvalue(), err.getvalue(), end.value.code)

    def module(self, name: str, *arguments: str) -> str:
        """The output of `python -m name`, run in this process; fails if it warns or writes to stderr."""
        return self._program(lambda: runpy.run_module(name, run_name="__main__"), [name, *arguments])

    def script(self, path: Path, *arguments: str) -> str:
        """The output of `python path`, run in this process; fails if it warns or writes to stderr."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", [str(path.parent), *sys.path])
            return self._program(lambda: runpy.run_path(str(path), run_name="__main__"), [str(path), *arguments])

    def _program(self, run: Callable[[], object], arguments: list[str]) -> str:
        out = io.StringIO()
        err = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", DeprecationWarning)  # hidden from users of a library
            warnings.filterwarnings("ignore", "'.*' found in sys.modules")  # another test may have imported it
            patch.setattr(sys, "argv", arguments)
            run()
        assert [str(warning.message) for warning in warned] == []
        assert err.getvalue() == ""
        return out.getvalue()

    def results(self) -> list[Path]:
        return results(self.folder)


def results(folder: Path) -> list[Path]:
    """The files of all results in the folder's store."""
    return sorted(folder.glob("engram-store/results/*/*.arrow"))
