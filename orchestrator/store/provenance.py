"""Provenance of a result: the machine and software that computed it. It is recorded and enters no key."""

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
    """The time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def process() -> str:
    """This process, as `host:pid`."""
    return f"{socket.gethostname()}:{os.getpid()}"


@functools.cache
def versions() -> Mapping[str, str]:
    """The versions of Python and of the installed packages that affect results."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


@functools.cache
def identity() -> Mapping[str, str]:
    """The identity that all machines of a run must share: the digest of this code, and the versions of packages.

    The local part of a version, which names a build such as `+cu130`, is omitted.
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
    """The git commit of this code; None if it does not run from a checkout."""
    git = Path(__file__).resolve().parents[2] / ".git"
    try:
        if git.is_file():  # a worktree: `gitdir: PATH`
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
    """The device and, if a task has loaded torch, the number of its threads.

    A task may have noted the device, as torch names it (`cuda:0`, `cpu`) or by its model name; its note takes
    precedence, since not every task uses an available GPU. Both give the same name.
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
