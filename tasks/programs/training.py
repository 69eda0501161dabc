"""Perform one training by a user's program: write its inputs, run it, and score the requested records.

A job runs in a temporary folder: `code` is a copy of the program's files and the working directory, `in` contains the
row numbers, and `out` receives the results. The folder is emptied when the job ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.programs.code import copy_code
from tasks.programs.command_line import PLACEHOLDERS, ROW_FORMATS, fill_command, used_placeholders
from tasks.programs.config import CommandTraining, FunctionTraining, Program
from tasks.programs.function import TrainingJob
from tasks.programs.process import ProgramFailed, run_command
from tasks.programs.returned import Requested, Scored, score_result
from tasks.worker.job_services import JobServices, ProgramDied, current_services

Rows = NDArray[np.int64]
WriteData = Callable[[Path], None]

PREFIX = "engram-job-"
SEEDS = 2**32  # seeds of numpy and torch's generators


@dataclass(frozen=True, eq=False)
class TrainingRequest:
    """One training: the rows to train on, the rows to score, the seed, and how to write changed records, if any."""

    rows: Rows
    ask: Rows
    seed: int
    write_data: WriteData | None = None


def train_and_score(program: Program, request: TrainingRequest, requested: Requested) -> Scored:
    """Train with the program and score the requested records.

    Raises ProgramFailed if the program fails or breaks its contract, and ProgramDied if a signal ends it.
    """
    with perform_training(program, request) as (result, out):
        return score_result(result, out, program.returns, requested, program.embedding)


@dataclass(frozen=True)
class JobFolder:
    """The folders of one job. `state` may survive it; the others are emptied when it ends."""

    root: Path
    state: Path
    out: Path
    data: Path | None


@contextmanager
def perform_training(program: Program, request: TrainingRequest) -> Iterator[tuple[Any, Path]]:
    """Train with the program. Yields the result of a function (None for a command) and the folder of its files.

    Raises ProgramFailed or ProgramDied as `train_and_score`; a full disk counts as the latter.
    """
    if not len(request.rows):
        raise ProgramFailed("there are no rows to train on")
    services = current_services()
    with _job_folder() as root:
        with _writing(root):
            folder = JobFolder(root, services.state or _make(root / "state"), _make(root / "out"), None)
            if request.write_data is not None:
                folder = replace(folder, data=_make(root / "data"))
                request.write_data(root / "data")
        if isinstance(program, CommandTraining):
            _run_command(program, request, folder, services)
            result = None
        else:
            result = _call_function(program, request, folder, services)
        yield result, folder.out


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Turn errors of the disk into ProgramDied, so that the job is sent again."""
    try:
        yield
    except OSError as error:
        raise ProgramDied(f"the folder of the job, {root}, cannot be written: {error.strerror or error}") from error


def _run_command(program: CommandTraining, request: TrainingRequest, folder: JobFolder, services: JobServices) -> None:
    values = {
        "seed": str(request.seed % SEEDS),
        "out": str(folder.out),
        "state": str(folder.state),
        "data": "" if folder.data is None else str(folder.data),
        "gpus": str(services.gpus),
    }
    filled = {}
    with _writing(folder.root):
        code = _make(folder.root / "code")
        copy_code(program.code, code)
        inputs = _make(folder.root / "in")
        for name, rows in (("rows", request.rows), ("ask", request.ask)):
            values[name] = str(_write_rows(inputs / f"{name}.npy", rows))
            for file_format in ROW_FORMATS:
                if (name, file_format) in used_placeholders(program.command):
                    filled[name, file_format] = str(_write_rows(inputs / f"{name}.{file_format}", rows))
        output = services.output or _make(folder.root / "printed")
    filled |= {(name, ""): value for name, value in values.items()}
    variables = {PLACEHOLDERS[name][0]: value for name, value in values.items()}
    run_command(fill_command(program.command, filled), code, variables, output, services)


def _call_function(
    program: FunctionTraining, request: TrainingRequest, folder: JobFolder, services: JobServices
) -> Any:
    function = program.function.load()
    job = TrainingJob(
        request.rows,
        request.ask,
        request.seed % SEEDS,
        folder.out,
        folder.state,
        folder.data,
        services.gpus,
        services.log,
    )
    return function(job)


def _write_rows(path: Path, rows: Rows) -> Path:
    """Write row numbers in the format of the file's suffix."""
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".txt":
        path.write_text("".join(f"{row}\n" for row in rows.tolist()))
    else:
        pq.write_table(pa.table({"row": rows}), path)
    return path


def _make(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _job_folder() -> Iterator[Path]:
    """Yield an empty folder, and empty it at the end.

    The jobs of a process share one folder with the same subfolders, because removing folders takes milliseconds on some
    file systems. The next process to start removes the folders of processes that were killed.
    """
    root = _process_folder(os.getpid())
    try:
        yield root
    finally:
        try:
            _empty(root)
        except OSError:  # the program has changed permissions; the next job gets another folder
            _process_folder.cache_clear()
            shutil.rmtree(root, ignore_errors=True)


@cache
def _process_folder(pid: int) -> Path:
    """Make the folder of this process, which is removed when the process ends."""
    parent = Path(tempfile.gettempdir())
    for old in parent.glob(f"{PREFIX}*"):
        owner = old.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}") and os.path.isdir("/proc/self"):
            shutil.rmtree(old, ignore_errors=True)
    root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-"))
    atexit.register(_remove_folder, root, pid)
    return root


def _remove_folder(root: Path, pid: int) -> None:
    """Remove the folder of a process, unless this is one of its children, which inherit its exit functions."""
    if os.getpid() == pid:
        shutil.rmtree(root, ignore_errors=True)


def _empty(root: Path) -> None:
    """Remove all files below the folder, and all folders except its direct subfolders."""
    for folder in root.iterdir():
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink()
            continue
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
