"""Python processes, forked from a process that has imported the slow modules.

A `Fork` replaces `subprocess.Popen` for the commands `python -m MODULE` and `python -c CODE`. It has its own process
number, environment and folder, but `/proc/PID/environ` shows the environment of the original process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import logging
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "toys")))
UPLOADER = "orchestrator.tracking.uploader"  # the child of a fork that loads MLflow, which no other does
# They load Ray, which reads its settings from the environment once.
LEFT_OUT = ("orchestrator.__main__", "orchestrator.executors", "orchestrator.searches")
# By a computation, by pyarrow when it makes its first array, and by torch when it counts the operations of a step.
LATE_IMPORTS = ("scipy.stats", "pandas", "torch._dynamo")
# Commands that read data, configurations and their descriptions, none of which differ between forks.
FIRST_COMMANDS = [["show", "unique_feature"], ["list"], ["run", "--help"]]
for _audit in ("unique_feature", "membership", "forgetting", "density"):
    FIRST_COMMANDS.append(
        ["plan", _audit, "--preset", "smoke", "--address", "none", "--store", "/nonexistent", "seed=1"]
    )
server: list[str] = []  # its address once it runs; forks have their children forked by the same server
SHARED = "TEST_FORKS"  # the variable with the root of a checkout and the address of the server that its tests share
spent = 0.0  # seconds of processor time that this process's ended forks have taken so far


class Fork:
    """A forked process."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        cwd: Path | str,
        env: Mapping[str, str] | None = None,
        text: bool = True,
        start_new_session: bool = False,
    ) -> None:
        assert text
        assert sys.executable == command[0]
        self.args = command
        self.returncode = None
        self._kept: list[int] = []
        child_ends, own_ends = zip(*map(self._stream, (stdin, stdout, stderr), "wrr"), strict=True)
        self.stdin, self.stdout, self.stderr = own_ends
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect(address())
        order = [list(command), str(cwd), dict(os.environ if env is None else env), start_new_session]
        socket.send_fds(self._server, [json.dumps(order).encode()], child_ends)
        self.pid = int(self._server.recv(100))
        for descriptor in self._kept:
            os.close(descriptor)

    def _stream(self, target: int | None, mode: str) -> tuple[int, IO[str] | None]:
        """The descriptor of one of its standard streams, and this process's end of the pipe, if it is one."""
        if target is None or target >= 0:
            return target if target is not None else "wrr".index(mode), None
        if target == subprocess.DEVNULL:
            self._kept.append(os.open(os.devnull, os.O_RDWR))
            return self._kept[-1], None
        assert target == subprocess.PIPE
        ends = os.pipe()
        own_end, child_end = ends if mode == "r" else reversed(ends)
        self._kept.append(child_end)
        return child_end, os.fdopen(own_end, mode)

    def poll(self) -> int | None:
        return self._end(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._end(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def _end(self, timeout: float | None) -> int | None:
        global spent
        if self.returncode is None and select.select([self._server], [], [], timeout)[0]:
            self.returncode, seconds = json.loads(self._server.recv(100))
            self._server.close()
            spent += seconds
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        outputs = ["", ""]

        def read(index: int, stream: IO[str]) -> None:
            with stream:
                outputs[index] = stream.read()

        streams = []
        for indexed in enumerate((self.stdout, self.stderr)):
            if indexed[1] and not indexed[1].closed:
                streams.append(indexed)
        readers = []
        for indexed in streams:
            readers.append(threading.Thread(target=read, args=indexed, daemon=True))
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(timeout)
        return outputs[0], outputs[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(command: Sequence[str], *, input: bytes, timeout: float, env: Mapping[str, str], **options: bool) -> Any:
    """`subprocess.run` with both outputs, in a fork if the server runs; to start it takes longer than a process."""
    if not is_running():
        return subprocess.run(command, input=input, timeout=timeout, env=env, **options)
    with tempfile.TemporaryFile() as file:
        file.write(input)
        file.seek(0)
        streams = {"stdin": file.fileno(), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        fork = Fork(command, cwd=os.getcwd(), env=env, **streams)
        outputs = fork.communicate(timeout)
    ended = subprocess.CompletedProcess(command, fork.wait(), *outputs)
    ended.check_returncode()
    return ended


def fork_counting() -> None:
    """Have the processes forked that count the operations of steps, each of which would import torch."""
    counting = importlib.import_module("orchestrator.pricing.counting")
    counting.subprocess = type("Forks", (), {**vars(subprocess), "run": staticmethod(run)})


def is_running() -> bool:
    """Whether this process or one of its ancestors has started the server."""
    root, _, shared = os.environ.get(SHARED, "").partition(os.pathsep)
    if not server and root == str(ROOT):
        server.append(shared)
    return bool(server)


def address() -> str:
    """The server's address. This process starts the server if none of its ancestors has."""
    if not is_running():
        folder = tempfile.TemporaryDirectory(prefix="engram-forks-")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(f"{folder.name}/socket")
        listening.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks", str(listening.fileno())],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
            pass_fds=[listening.fileno()],
        )
        server.append(listening.getsockname())
        listening.close()

        @atexit.register
        def end() -> None:
            process.communicate()  # it ends with this pipe
            folder.cleanup()

    return server[0]


def serve(listening: socket.socket) -> list[str]:
    """Fork on request until standard input ends. Returns in each fork, with its command."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready = select.select([0, listening.fileno(), *running], [], [])[0]
        if 0 in ready:
            os._exit(0)
        for descriptor in running.keys() & ready:
            pid, client = running.pop(descriptor)
            os.close(descriptor)
            _, status, usage = os.wait4(pid, 0)
            answer = [os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime]
            with client, contextlib.suppress(OSError):  # it may be gone
                client.send(json.dumps(answer).encode())
        if listening.fileno() in ready:
            client = listening.accept()[0]
            order, streams, *_ = socket.recv_fds(client, 2**20, 3)
            if not order:  # the client has ended
                client.close()
                continue
            command, folder, environment, session = json.loads(order)
            if any(UPLOADER in word for word in command):
                import_mlflow()
            pid = os.fork()
            if not pid:
                for connection in (listening, client, *(connection for _, connection in running.values())):
                    connection.close()
                for descriptor in running:
                    os.close(descriptor)
                become(streams, folder, environment, session)
                return list(command)
            for descriptor in streams:
                os.close(descriptor)
            with contextlib.suppress(OSError):
                client.send(str(pid).encode())
            running[os.pidfd_open(pid)] = pid, client


def become(streams: Sequence[int], folder: str, environment: Mapping[str, str], session: bool) -> None:
    """Give this process the standard streams, folder and environment of a new one."""
    if session:
        os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ |= environment


def import_mlflow() -> None:
    """Import MLflow in the way of an uploader."""
    from orchestrator.tracking import uploader

    if "mlflow" not in sys.modules:
        before = dict(os.environ)
        uploader.quiet()
        importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
        os.environ.clear()
        os.environ |= before
        logging.disable(logging.NOTSET)


def execute(command: Sequence[str]) -> None:
    """Run a command as `python` does."""
    rest = [word for word in command[1:] if word != "-P"]
    added = []
    for path in os.environ.get("PYTHONPATH", "").removeprefix(PATHS).split(os.pathsep):
        if path:
            added.append(path)
    sys.path[0] = os.getcwd()
    sys.path[3:3] = added
    if rest[0] == "-m":
        sys.argv = ["-m", *rest[2:]]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *rest[2:]]
        exec(rest[1], {"__name__": "__main__"})


def fill_caches() -> None:
    """Import and compute what most forks would otherwise repeat."""
    from orchestrator.cli.commands import command

    for module in LATE_IMPORTS:
        importlib.import_module(module)
    silence = io.StringIO()
    for arguments in FIRST_COMMANDS:
        with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
            command()(arguments, prog_name="engram", standalone_mode=False)
    assert not {"ray", "mlflow"} & {*sys.modules}  # as for LEFT_OUT


def main() -> NoReturn:
    import orchestrator
    import tasks

    for package in (orchestrator, tasks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(LEFT_OUT):
                importlib.import_module(module.name)
    # Each fork would start a process that measures the machine's speed.
    importlib.import_module("orchestrator.pricing.reference")._measure_apart()
    fill_caches()
    gc.freeze()  # otherwise a fork's first collection writes to all pages that it shares with the server
    listening = socket.socket(fileno=int(sys.argv[1]))
    server.append(listening.getsockname())
    command = serve(listening)
    # Forked processes also have their uploader forked.
    delivery = importlib.import_module("orchestrator.tracking.delivery")
    delivery.subprocess = type("Forks", (), {**vars(subprocess), "Popen": Fork})
    fork_counting()
    try:
        execute(command)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
