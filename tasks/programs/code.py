"""The files of a user's program: which they are, their digest, an archive of them, and a copy in which a job runs.

Written as paths and patterns relative to the current folder, separated by commas: `training.code=train.py,configs/*`.
Empty: the files of the current folder that git tracks or, outside a git repository, its Python files and scripts. Files
that the command names are always among them. A key contains the digest of their names and contents, never their folder.

A run keeps an archive of the files, so that later changes to them do not affect its jobs. `ProgramCode.folder` is then
the path of the archive or, in a bucket, its name in the store after `store:`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from tasks.contract.pinnable import DIGEST, Unavailable
from tasks.datasets.source import digest_of
from tasks.worker.job_services import current_services

RULE = "program 1"
STORED = "store:"  # prefix of the name of an archive in the store of a run
INSIDE = "::"  # separates the folder from the patterns, once pinned
SCRIPTS = (".py", ".sh", ".r", ".jl", ".toml", ".yaml", ".yml", ".json", ".cfg", ".ini")
PROGRAMS = (".py", ".sh", ".r", ".jl")
SKIPPED = ("__pycache__", "node_modules", "mlruns", "venv", "build", "dist")
NOT_CODE = ("pyvenv.cfg", "engram-store.json")  # files that mark a folder as an environment or as a store
MOST_FILES = 5_000
MOST_BYTES = 256 * 2**20
OWN_FILES = "training.code=FILES"


class CodeError(Unavailable):
    """Files of a program are absent, too many, or different from the pinned ones."""


@dataclass(frozen=True)
class ProgramCode:
    """The files of a program, pinned once `digest` is set. Written `PATTERNS`, or `FOLDER::PATTERNS@digest`."""

    noun: ClassVar[str] = "program"

    patterns: str = ""
    folder: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> ProgramCode:
        rest, _, digest = text.rpartition("@")
        if not DIGEST.fullmatch(digest):
            rest, digest = text, ""
        folder, inside, patterns = rest.rpartition(INSIDE)
        if not inside:
            folder, patterns = "", rest
        return cls(patterns, folder, digest)

    def __str__(self) -> str:
        text = f"{self.folder}{INSIDE}{self.patterns}" if self.folder else self.patterns
        return f"{text}@{self.digest}" if self.digest else text

    def named(self) -> ProgramCode:
        """Return the files, or their archive, without the path of the folder."""
        return ProgramCode(self.patterns or Path(self.folder).name, "", self.digest)

    def identity(self) -> str:
        """Return what identifies the files in a key. Raises ValueError if they are not pinned."""
        if not self.digest:
            raise ValueError("the program's files have no digest yet; pin them before planning")
        return self.digest

    def pin(self, known_digests: MutableMapping[str, str]) -> ProgramCode:
        """Return the files with their absolute folder and digest. Raises CodeError if they are missing or differ."""
        if self.folder.startswith(STORED):
            return self
        folder = Path(self.folder or ".").expanduser().absolute()
        pinned = replace(self, folder=str(folder))
        digest = digest_files(folder, list_files(pinned), known_digests) if folder.is_dir() else archive_digest(folder)
        if self.digest and digest != self.digest:
            raise CodeError(
                f"the program's files in {folder} are not the ones that were pinned: their digest is {digest}, not "
                f"{self.digest}"
            )
        return replace(pinned, digest=digest)

    def with_files(self, paths: list[str]) -> ProgramCode:
        """Return the code with these files of the current folder besides those that git tracks.

        A program that does not exist stays among them, so that pinning reports it. Other missing files may be results.
        """
        if self.folder or self.patterns:
            return self
        file_names = []
        for path in paths:
            is_inside = not Path(path).is_absolute() and ".." not in Path(path).parts
            if is_inside and (Path(path).is_file() or path.lower().endswith(PROGRAMS)):
                file_names.append(path)
        return replace(self, patterns=",".join(["", *sorted(set(file_names))])) if file_names else self

    def paths(self) -> tuple[Path, ...]:
        """Return the files on this machine. Raises CodeError if there are too many."""
        if self.folder.startswith(STORED):
            return ()
        folder = Path(self.folder or ".")
        return tuple(folder / name for name in list_files(self)) if folder.is_dir() else (folder,)


TRACKED_FILES = ProgramCode()


def list_files(code: ProgramCode) -> list[str]:
    """Return the names of the files relative to their folder, sorted. Raises CodeError if there are too many or none.

    An empty pattern selects the files that git tracks.
    """
    folder = Path(code.folder or ".").expanduser()
    if not folder.is_dir():
        raise CodeError(f"there is no folder {folder}, which contains the training program")
    names: set[str] = set()
    for pattern in code.patterns.split(","):
        names.update(_match_pattern(folder, pattern.strip()))
        if len(names) > MOST_FILES:
            raise CodeError(
                f"{folder} has more than {MOST_FILES:,} files; name those of the program, such as {OWN_FILES}"
            )
    return sorted(names)


def _match_pattern(folder: Path, pattern: str) -> Iterator[str]:
    if not pattern:
        yield from _tracked_files(folder)
        return
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise CodeError(f"training.code names {pattern!r}; its files must be inside {folder}, where the command runs")
    matches = sorted(folder.glob(pattern))
    if not matches:
        raise CodeError(f"there is no file {pattern} in {folder}, which training.command or training.code names")
    for path in matches:
        if path.is_dir():
            yield from _scripts_below(folder, path)
        else:
            yield path.relative_to(folder).as_posix()


def _tracked_files(folder: Path) -> Iterator[str]:
    """Yield the files below the folder that git tracks or, without git, its scripts."""
    try:
        listing = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "-z", "--cached"], capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        yield from _scripts_below(folder, folder)
        return
    for name in listing.decode(errors="surrogateescape").split("\0"):
        if name and (folder / name).is_file():
            yield name


def _scripts_below(folder: Path, start: Path) -> Iterator[str]:
    """Yield the Python files, scripts and settings below a folder, but not those of environments and stores."""
    for parent, folders, files in os.walk(start):
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".")
            and name not in SKIPPED
            and not any((Path(parent) / name / mark).exists() for mark in NOT_CODE)
        ]
        for name in files:
            if name.lower().endswith(SCRIPTS) and not name.startswith("."):
                yield (Path(parent) / name).relative_to(folder).as_posix()


def digest_files(folder: Path, names: Sequence[str], known_digests: MutableMapping[str, str] | None = None) -> str:
    """Return the digest of the names, contents and execute permissions of files in a folder.

    `known_digests` caches digests by path, size and modification time. Raises CodeError if a file cannot be read, or if
    the files are too large.
    """
    known_digests = {} if known_digests is None else known_digests
    parts: list[bytes] = []
    total = 0
    for name in names:
        path = folder / name
        try:
            state = path.stat()
            total += state.st_size
            stamp = json.dumps(["file", str(path), state.st_size, state.st_mtime_ns])
            if stamp not in known_digests:
                with path.open("rb") as file:
                    known_digests[stamp] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CodeError(f"{path} cannot be read: {error.strerror or error}") from None
        if total > MOST_BYTES:
            raise CodeError(
                f"the program's files in {folder} are larger than {MOST_BYTES >> 20} MiB; name those that it needs, "
                f"such as {OWN_FILES}, and refer to data by absolute paths"
            )
        is_executable = b"x" if state.st_mode & 0o100 else b""
        parts += [name.encode(errors="surrogateescape"), known_digests[stamp].encode(), is_executable]
    return digest_of(RULE, parts)


def pack_code(code: ProgramCode, archive: Path) -> ProgramCode:
    """Write the files into an archive, unless it exists, and return the code that is read from there.

    Raises CodeError if the files differ from the pinned ones.
    """
    if not archive.exists():
        folder = Path(code.folder)
        draft = archive.with_name(f".{archive.name}-{os.getpid()}")
        try:
            with tarfile.open(draft, "w") as tar:
                for name in list_files(code):
                    tar.add(folder / name, name, recursive=False)
            if archive_digest(draft) != code.digest:
                raise CodeError(f"the program's files in {folder} changed while the run was planned; start it again")
            draft.replace(archive)
        except OSError as error:
            raise CodeError(f"the program's files in {folder} cannot be kept: {error.strerror or error}") from None
        finally:
            draft.unlink(missing_ok=True)
    return ProgramCode("", str(archive), code.digest)


def archive_digest(archive: Path) -> str:
    """Return the digest of the files in an archive. Raises CodeError if it cannot be read."""
    with tempfile.TemporaryDirectory(prefix="engram-code-") as folder:
        return digest_files(Path(folder), _unpack(archive, Path(folder)))


def _unpack(archive: Path, target: Path, content: io.BytesIO | None = None) -> list[str]:
    """Unpack an archive, or its content, into a folder and return the names of its files, sorted."""
    try:
        with tarfile.open(archive, fileobj=content) as tar:
            tar.extractall(target, filter="data")
            return sorted(member.name for member in tar.getmembers())
    except (OSError, tarfile.TarError) as error:
        raise CodeError(f"the program's files in {archive} cannot be read: {' '.join(str(error).split())}") from None


def copy_code(code: ProgramCode, target: Path) -> None:
    """Copy the files into the folder `target`. Raises CodeError if they differ from the pinned ones."""
    folder = Path(code.folder or ".")
    if code.folder.startswith(STORED):
        content = current_services().read_file(code.folder.removeprefix(STORED))
        names = _unpack(folder, target, io.BytesIO(content))
    elif folder.is_file():
        names = _unpack(folder, target)
    else:
        names = list_files(code)
        for name in names:
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copy2(folder / name, path)
            except OSError as error:
                raise CodeError(f"{folder / name} cannot be read: {error.strerror or error}") from None
    if code.digest and digest_files(target, names) != code.digest:
        raise CodeError(
            f"the program's files in {folder} have changed since this run was planned; start it again to use the new "
            "ones, or restore them"
        )
