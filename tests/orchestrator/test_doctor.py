"""`engram debug doctor` reports the state of each part of an installation, with advice for what fails."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import doctor
from orchestrator.doctor import MachineCheck, Port, examine
from orchestrator.quantities import format_size
from orchestrator.store import open_store
from tasks.contract.extras import RAY, install_command
from tests.support.shell import Shell, refusals


def checks(store: Path, address: str | None = "none") -> dict[str, MachineCheck]:
    return {check.name: check for check in examine(str(store), address)}


def test_tests_environment_passes_all_checks(tmp_path: Path) -> None:
    results = checks(tmp_path / "store")
    assert [check for check in results.values() if check.ok is False] == []
    assert ".".join(map(str, sys.version_info[:3])) == results["python"].found
    assert "unique_feature" in results["audits"].found
    assert "not created yet" in results["store"].found
    assert not (tmp_path / "store").exists()


def test_store_results_are_counted(tmp_path: Path) -> None:
    import pyarrow as pa

    store = open_store(tmp_path)
    store.write("a" * 64, pa.table({"x": [1]}), {})
    assert "1 results, writable" in checks(tmp_path)["store"].found


@pytest.mark.parametrize("kind", ["a file in its place", "a file above it", "another folder"])
def test_unusable_store_folder_fails_with_advice(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "store"
    if kind == "another folder":
        folder.mkdir()
        (folder / "letters.txt").write_text("dear")
    else:
        folder.write_text("no folder")
    store_check = checks(folder / "below" if kind == "a file above it" else folder)["store"]
    assert store_check.ok is False
    assert "--store" in store_check.advice


def test_unreachable_cluster_fails(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        cluster_check = checks(tmp_path, address)["ray cluster"]
        assert (False, f"{address} does not answer") == (cluster_check.ok, cluster_check.found)
        free.listen()
        assert checks(tmp_path, address)["ray cluster"].ok is True


def test_ports_show_purpose_token_and_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        number = listener.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", (Port(number, "Ray's head", True), Port(None, "Ray's metrics", False)))
        results = checks(tmp_path)
    assert results[f"port {number}"].found == "Ray's head; requires Ray's token; in use here"
    assert results["port any"].found == "Ray's metrics; answers without a token"


def test_missing_token_and_tls_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert checks(tmp_path, "127.0.0.1:1")["ray token"].ok is None
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert checks(tmp_path, "127.0.0.1:1")["ray token"].ok is True
    monkeypatch.setenv("RAY_USE_TLS", "1")
    for name in doctor.TLS_FILES:
        monkeypatch.setenv(name, str(tmp_path / "absent" if "KEY" in name else __file__))
    tls_check = checks(tmp_path)["ray tls"]
    assert (tls_check.ok, tls_check.found) == (False, "on, without RAY_TLS_SERVER_KEY")


def test_long_ray_session_folder_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 100)))
    session_check = checks(tmp_path, None)["ray session"]
    assert session_check.ok is False
    assert "shorter path" in session_check.advice


@pytest.mark.parametrize(("variable", "code"), [("TMPDIR", 0), ("RAY_TMPDIR", 1)])
def test_long_temporary_folder_gives_clear_error(variable: str, code: int, shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    shell.env[variable] = str(folder)
    lines = refusals(shell("run", "toys", "parts=1", "--address", "local", code=code).stderr)
    if code:
        assert lines[-1].startswith(f"engram: RAY_TMPDIR is {folder}; it must have at most ")
    assert list(folder.iterdir()) == []


def test_missing_data_set_gives_advice_without_failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    results = checks(tmp_path)
    assert results["data mnist"].ok is None
    assert "ENGRAM_DATA" in results["data mnist"].advice
    assert results["data digits"].ok is True


def test_only_missing_required_packages_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("ray", "mlflow") else real(name))
    results = checks(tmp_path)
    assert (False, install_command([RAY])) == (results["ray"].ok, results["ray"].advice)
    assert results["mlflow"].ok is None


def test_doctor_loads_neither_torch_nor_ray(tmp_path: Path) -> None:
    script = (
        "import sys; from orchestrator.doctor import examine; list(examine(sys.argv[1], 'none')); "
        "print([name for name in ('torch', 'ray', 'mlflow', 'pandas') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", script, str(tmp_path / "store")]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert completed.stdout.strip() == "[]"


@pytest.mark.parametrize(("count", "expected"), [(12, "12 bytes"), (25_300_000_000, "25.3 GB"), (4.2e12, "4.2 TB")])
def test_sizes_are_formatted_with_units(count: float, expected: str) -> None:
    assert expected == format_size(count)


def test_unreachable_tracking_server_passes_with_hidden_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:secret@127.0.0.1:1")
    tracking_check = checks(tmp_path)["tracking"]
    assert tracking_check.ok is None
    assert tracking_check.found == "http://127.0.0.1:1 does not answer"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    tracking_check = checks(tmp_path)["tracking"]
    assert (True, f"{tmp_path}/mlflow/mlflow.db, not created yet") == (tracking_check.ok, tracking_check.found)
