"""Creates a training program that an audit can run, from a template that works immediately."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from orchestrator.errors import EngramError, SpecError
from orchestrator.scaffold import HERE, NewFiles

PROGRAM = "train.py"
RECORDS = 200  # in the template
MODELS = 16


def new_training(folder: Path) -> NewFiles:
    """Write a training program into this folder, and return the commands that run it.

    Raises SpecError if the file exists, and EngramError if it cannot be written.
    """
    path = folder / PROGRAM
    text = (HERE / "training.template").read_text(encoding="utf-8")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(f"{path} exists; give another folder") from None
    except OSError as error:
        raise EngramError(f"{path} cannot be written: {error.strerror}") from None
    command = shlex.quote(f"training.command={_python()} {PROGRAM}")
    run = f"engram run membership records={RECORDS} models={MODELS} {command}"
    enter = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    return NewFiles((path,), (*enter, run))


def _python() -> str:
    """Return the command of this interpreter: `python` if the path finds it, otherwise its full path."""
    found = shutil.which("python")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "python"
    return shlex.quote(sys.executable)
