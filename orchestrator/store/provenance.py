"""Provenance of a result: the machine and software that computed it. It is recorded but is not part of any key."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import socket
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("engram-audit", "numpy", "scipy", "pyarrow", "torch", "ray")


def now() -> str:
    """Return the current time in UTC, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def process() -> str:
    """Return this process as `host:pid`."""
    return f"{socket.gethostname()}:{os.getpid()}"


@functools.cache
def versions() -> Mapping[str, str]:
    """Return the versions of Python and of installed packages that affect results."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


@functools.cache
def identity() -> Mapping[str, str]:
    """Return what all machines of a run must have in common: the digest of this code and the package versions.

    Local version parts that name a build, such as `+cu130`, are omitted.
    """
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for path in sorted(path for package in ("orchestrator", "tasks") for path in (root / package).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return {"engram's source": digest.hexdigest()[:12]} | {
        name: version.partition("+")[0] for name, version in versions().items()
    }


@functools.cache
def commit() -> str | None:
    """Return the git commit of this code. Returns None if it does not run from a checkout."""
    git = Path(__file__).resolve().parents[2] / ".git"
    try:
        if git.is_file():  # a worktree, whose `.git` file contains `gitdir: PATH`
            git = Path(git.read_text().partition(":")[2].strip())
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        common = git / "commondir"
        if common.exists():
            root = (git / common.read_text().strip()).resolve()
        else:
            root = git
        for ref in (git / name, root / name):
            if ref.exists():
                return ref.read_text().strip()
        packed = (root / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
    except OSError:
        return None


def device(noted_device: str | None = None) -> Mapping[str, Any]:
    """Return the device and, if a task has loaded torch, its number of threads.

    A task may have noted its device, as torch names it (`cuda:0`, `cpu`) or by its model name. This note takes
    precedence, because not every task uses an available GPU. Both forms give the same name.
    """
    torch = sys.modules.get("torch")
    if noted_device is None:
        kind = None
    else:
        kind = noted_device.partition(":")[0]
    if torch is None:
        return {"device": noted_device or "cpu"}
    if kind not in (None, "cuda", "cpu"):
        name = noted_device
    elif kind != "cpu" and torch.cuda.is_available():
        name = torch.cuda.get_device_name()
    else:
        name = platform.processor() or platform.machine()
    return {"device": name, "threads": torch.get_num_threads()}
