"""Signatures of pages and other files with SSH keys, created and verified by OpenSSH's `ssh-keygen`.

The seal of a page contains the digests of its tables and of the audited items, so the signature covers these too.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import EngramError, SpecError
from tasks.worker.files import regular_bytes

SUFFIX = ".sig"  # suffix of the signature file next to a file
NAMESPACE = "engram-report"  # rejects signatures made with the same key for other purposes
SIGNER = "auditor"  # identity under which ssh-keygen knows the key
SECONDS = 120.0  # timeout of ssh-keygen, which may ask for a passphrase or a touch
KINDS = ("ssh-", "ecdsa-", "sk-")  # prefixes of public key types


def sign_file(path: Path, key: Path) -> Path:
    """Sign a file with a private key, or with an agent's key given by its public part, and return the signature's path.

    Raises SpecError if the file or key cannot be read, and EngramError if ssh-keygen fails.
    """
    data = _read("FILE", path)
    _ = _read("--key", key)
    signature = path.with_name(path.name + SUFFIX)
    process = _run(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], data)
    if process.returncode:
        raise EngramError(f"{path} cannot be signed with {key}: {_last_line(process)}")
    draft = signature.with_name(f".{signature.name}.{os.getpid()}")
    try:
        draft.write_bytes(process.stdout)
        os.replace(draft, signature)
    except OSError as error:
        raise EngramError(f"cannot write {signature}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            draft.unlink()
    return signature


def signature_problem(path: Path, key: Path) -> str:
    """Return the problem with a file's signature by this public key as one line. Returns an empty string if valid.

    Raises SpecError if the file is not a public key.
    """
    public = _public_key(key)
    signature = path.with_name(path.name + SUFFIX)
    if not signature.is_file():
        return f"the signature {signature.name} is missing next to it"
    with tempfile.TemporaryDirectory(prefix="engram-verify-") as folder:
        signers = Path(folder, "signers")
        signers.write_text(f'{SIGNER} namespaces="{NAMESPACE}" {public}\n')
        arguments = ["-Y", "verify", "-n", NAMESPACE, "-I", SIGNER, "-f", str(signers), "-s", str(signature)]
        process = _run(arguments, _read("PAGE", path))
    if process.returncode == 0:
        return ""
    return f"another key made it, or the file has changed: {_last_line(process)}"


def _public_key(path: Path) -> str:
    """Return the type and the key in a public key file."""
    text = _read("--key", path).decode(errors="replace")
    words = text.split()
    if "PRIVATE KEY" in text:
        raise SpecError(f"--key {path} is a private key; to verify, give the public one, {path.name}.pub")
    if len(words) < 2 or not words[0].startswith(KINDS):
        raise SpecError(f"--key {path} is not an SSH public key; give the one-line file that ssh-keygen writes (.pub)")
    return " ".join(words[:2])


def _read(option: str, path: Path) -> bytes:
    try:
        return regular_bytes(path)
    except OSError as error:
        raise SpecError(f"{option} {path}: {error.strerror or error}") from None


def _run(arguments: Sequence[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", *arguments], input=data, capture_output=True, timeout=SECONDS)
    except FileNotFoundError:
        raise EngramError("signatures need ssh-keygen, of OpenSSH 8.2 or later, which is not on PATH") from None
    except subprocess.TimeoutExpired:
        raise EngramError(f"ssh-keygen did not end within {SECONDS:.0f} s") from None


def _last_line(process: subprocess.CompletedProcess[bytes]) -> str:
    lines = (process.stderr or process.stdout).decode(errors="replace").strip().splitlines()
    if lines:
        return lines[-1]
    return f"ssh-keygen ended with {process.returncode}"
