"""Command lines with placeholders, such as `python train.py --rows {rows} --seed {seed} --out {out}`.

Only `{name}` and `{name:format}` in lower case are placeholders, so that braces of the shell stay as they are. `{{` and
`}}` are literal braces. Each value is quoted for the shell.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType

PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([a-z_]+)(?::([a-z0-9]+))?\}")
ROW_FORMATS = ("npy", "txt", "parquet")
FORMATS: Mapping[str, tuple[str, ...]] = MappingProxyType({"rows": ROW_FORMATS, "ask": ROW_FORMATS})
# Placeholders: the environment variable with the same value, and its meaning.
PLACEHOLDERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "rows": ("ENGRAM_ROWS", "file with the numbers of the rows to train on, from 0"),
        "seed": ("ENGRAM_SEED", "seed of this training"),
        "out": ("ENGRAM_OUT", "folder for the results"),
        "state": ("ENGRAM_STATE", "folder that survives if this job is interrupted"),
        "data": ("ENGRAM_RECORDS", "folder with the records to train on and to score, if the audit changes records"),
        "ask": ("ENGRAM_ASK", "file with the numbers of the rows to score, in this order"),
        "gpus": ("ENGRAM_GPUS", "number of GPUs of this job"),
    }
)


def check_command(command: str) -> None:
    """Raise ValueError, in one line, if the command is empty or has an unknown placeholder or format."""
    if not command.strip():
        raise ValueError("command is empty; write the command that trains one model")
    for name, file_format in used_placeholders(command):
        if name not in PLACEHOLDERS:
            close = difflib.get_close_matches(name, PLACEHOLDERS, 1)
            hint = f"; did you mean {{{close[0]}}}?" if close else "."
            names = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            raise ValueError(
                f"command has the placeholder {{{name}}}; the placeholders are {names}{hint} Write {{{{ and }}}} for "
                "braces"
            )
        if file_format and file_format not in FORMATS.get(name, ()):
            formats = " or ".join(f"{{{name}:{allowed}}}" for allowed in FORMATS.get(name, ())) or f"{{{name}}}"
            raise ValueError(f"command has the placeholder {{{name}:{file_format}}}; write {formats}")


def used_placeholders(command: str) -> list[tuple[str, str]]:
    """Return the (name, format) of each placeholder in the command, in order. The format is empty if none is given."""
    placeholders = []
    for match in PLACEHOLDER.finditer(command):
        if match[1]:
            placeholders.append((match[1], match[2] or ""))
    return placeholders


def fill_command(command: str, values: Mapping[tuple[str, str], str]) -> str:
    """Return the command with the values of its placeholders, by (name, format), quoted for the shell."""

    def fill(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return shlex.quote(values[match[1], match[2] or ""])

    return PLACEHOLDER.sub(fill, command)


def named_files(command: str) -> list[str]:
    """Return the words of a command that could be paths of files, without placeholders and options."""
    try:
        words = shlex.split(command)
    except ValueError:  # an unbalanced quote, which the shell reports
        words = command.split()
    paths = []
    for word in words:
        if word and not PLACEHOLDER.search(word) and not word.startswith("-") and PurePath(word).name:
            paths.append(word)
    return paths
