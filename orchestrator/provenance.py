"""Where and with what a result was made: what a record says beside the result, and no key ever sees."""

from __future__ import annotations

import functools
import os
import platform
import socket
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("engram-audit", "numpy", "scipy", "pyarrow", "torch", "ray")


def process() -> str:
    """This process, as `host:pid`."""
    return f"{socket.gethostname()}:{os.getpid()}"


@functools.cache
def versions() -> Mapping[str, str]:
    """The versions of Python and of the packages that bear on numbers; those that are not installed are left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def commit() -> str | None:
    """The git commit of this code, where it runs from a checkout."""
    git = Path(__file__).resolve().parents[1] / ".git"
    try:
        if git.is_file():  # a worktree: `gitdir: PATH`
            git = Path(git.read_text().partition(":")[2].strip())
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        common = git / "commondir"
        root = (git / common.read_text().strip()).resolve() if common.exists() else git
        for ref in (git / name, root / name):
            if ref.exists():
                return ref.read_text().strip()
        packed = (root / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
    except OSError:
        return None


def device() -> Mapping[str, Any]:
    """The device and threads that torch computes with here, where a task has loaded it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {"device": "cpu"}
    if torch.cuda.is_available():
        return {"device": torch.cuda.get_device_name(), "threads": torch.get_num_threads()}
    return {"device": platform.processor() or platform.machine(), "threads": torch.get_num_threads()}
