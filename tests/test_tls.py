"""A run on a cluster with encrypted connections, with certificates as described in docs/clusters.md."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("ray")

from ray._private import services

from tests.support.ports import free_port
from tests.support.ray_head import ray_head
from tests.support.shell import PATHS, ROOT, Shell
from tests.support.waiting import HANGING


def certificates(folder: Path, host: str) -> dict[str, str]:
    """The environment of a holder of a certificate for this address. The recipe comes from the docs."""
    folder.mkdir()
    page = (ROOT / "docs" / "clusters.md").read_text()
    (recipe,) = re.findall(r'```bash title="run by tests/test_tls.py"\n(.*?)```', page, flags=re.S)
    subprocess.run(
        ["sh", "-euc", recipe],
        cwd=folder,
        env={"ADDRESSES": f"IP:{host},IP:127.0.0.1"},
        check=True,
        capture_output=True,
    )
    names = {"CA_CERT": "ca.crt", "SERVER_CERT": "ray.crt", "SERVER_KEY": "ray.key"}
    return {"RAY_USE_TLS": "1"} | {f"RAY_TLS_{name}": str(folder / file) for name, file in names.items()}


@pytest.mark.slow
def test_tls_requires_a_certificate_of_the_authority(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (apt-get install openssl)")
    host = services.get_node_ip_address()  # Ray always listens there
    tls = certificates(tmp_path / "theirs", host)
    other_certificates = certificates(tmp_path / "others", host)
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    settings = {**token, **tls, "PYTHONPATH": PATHS, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    options = ("--num-cpus=1", "--include-dashboard=false")
    options += (f"--dashboard-agent-listen-port={free_port()}", f"--ray-client-server-port={free_port()}")
    port = free_port()
    engram = Shell(tmp_path, fresh=True)
    arguments = ("run", "toys", "parts=2", f"folder={tmp_path}", "--address", f"{host}:{port}")
    with ray_head(port, tmp_path / "head.log", settings, *options):
        for environment in (token, token | other_certificates):
            engram.env = Shell(tmp_path).env | environment
            run = engram.start(*arguments)
            output = "".join(run.communicate(timeout=HANGING))
            assert run.returncode == 1, output
            assert "TLS" in output.strip().splitlines()[-1], output
            assert engram.results() == []
        engram.env |= tls
        run = engram.start(*arguments, "--json")
        out, output = run.communicate(timeout=HANGING)
        assert run.returncode == 0, output
        assert '"state": "finished"' in out
