"""A page is signed with an SSH key. The public key shows that the page comes from its owner and is unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.shell import Here

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return made_key(tmp_path / "auditor")


def made_key(path: Path, kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True)
    return path


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    here = Here(tmp_path)
    here.env["ENGRAM_REPORT"] = "yes"
    return here


@pytest.fixture
def page(engram: Here) -> Path:
    return Path(engram.json("run", "toys", "--address", "none", "parts=2")["report"])


def test_signed_page_verifies_with_its_key_only(engram: Here, page: Path, key: Path, tmp_path: Path) -> None:
    public = f"{key}.pub"
    assert "the signature report.html.sig is missing" in engram("verify", str(page), "--key", public, code=1).stdout
    assert engram("sign", str(page), "--key", str(key)).stdout == f"{page}.sig\n"
    (first, *_) = engram.json("verify", str(page), "--key", public)["checks"]
    assert first["what"] == "signature"
    assert first["name"] == "report.html.sig"
    assert first["state"] == "agrees"
    other_key = made_key(tmp_path / "other", "ecdsa")
    assert "another key made it" in engram("verify", str(page), "--key", f"{other_key}.pub", code=1).stdout
    engram("sign", str(page), "--key", str(other_key))  # signed again
    assert "signature report.html.sig: by" in engram("verify", str(page), "--key", f"{other_key}.pub").stdout
    page.write_bytes(page.read_bytes().replace(b"toys", b"tops", 1))
    assert "incorrect signature" in engram("verify", str(page), "--key", f"{other_key}.pub", code=1).stdout


def test_ssh_keygen_verifies_the_documented_signature(engram: Here, page: Path, key: Path, tmp_path: Path) -> None:
    engram("sign", str(page), "--key", str(key))
    signers = tmp_path / "allowed_signers"
    signers.write_text(f"auditor@example.org {Path(f'{key}.pub').read_text()}")
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "auditor@example.org", "-n", "engram-report"]
    with page.open("rb") as file:
        ended = subprocess.run([*command, "-s", f"{page}.sig"], stdin=file, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sign", "absent.html", "--key", "auditor"), "FILE absent.html: No such file"),
        (("sign", "page.txt", "--key", "absent"), "--key absent: No such file"),
        (("sign", "page.txt", "--key", "page.txt"), "cannot be signed with page.txt"),
        (("sign", "pipe", "--key", "auditor"), "FILE pipe: it is a device, a pipe or a socket"),
        (("sign", "page.txt", "--key", "pipe"), "--key pipe: it is a device, a pipe or a socket"),
        (("verify", "--key", "auditor.pub"), "--key requires a page"),
    ],
)
def test_invalid_signing_input_gives_one_line_error(
    engram: Here, key: Path, arguments: tuple[str, ...], message: str
) -> None:
    (engram.folder / "page.txt").write_text("a page")
    os.mkfifo(engram.folder / "pipe")  # without a writer
    ended = engram.run(*arguments)
    assert ended.returncode in (1, 2)
    (line,) = ended.stderr.strip().splitlines()
    assert message in line
    assert not (engram.folder / "page.txt.sig").exists()


def test_verification_requires_a_public_key(engram: Here, page: Path, key: Path) -> None:
    assert (
        "is a private key; to verify, give the public one"
        in engram("verify", str(page), "--key", str(key), code=2).stderr
    )
    assert "is not an SSH public key" in engram("verify", str(page), "--key", str(page), code=2).stderr
