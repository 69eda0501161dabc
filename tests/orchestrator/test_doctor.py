"""The doctor says what is well, and for the rest what to do about it."""

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


def test_what_runs_the_tests_is_found_well(tmp_path: Path) -> None:
    found = checks(tmp_path / "store")
    assert [check for check in found.values() if check.ok is False] == []
    assert ".".join(map(str, sys.version_info[:3])) == found["python"].found
    assert "unique_feature" in found["audits"].found
    assert "not created yet" in found["store"].found
    assert not (tmp_path / "store").exists()


def test_the_results_of_a_store_are_counted(tmp_path: Path) -> None:
    import pyarrow as pa

    store = open_store(tmp_path)
    store.write("a" * 64, pa.table({"x": [1]}), {})
    assert "1 results, writable" in checks(tmp_path)["store"].found


@pytest.mark.parametrize("kind", ["a file in its place", "a file above it", "another folder"])
def test_a_place_that_can_be_no_store_is_bad_and_another_is_advised(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "store"
    if kind == "another folder":
        place.mkdir()
        (place / "letters.txt").write_text("dear")
    else:
        place.write_text("no folder")
    found = checks(place / "below" if kind == "a file above it" else place)["store"]
    assert found.ok is False
    assert "--store" in found.advice


def test_a_cluster_that_does_not_answer_is_bad(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        found = checks(tmp_path, address)["ray cluster"]
        assert (False, f"{address} does not answer") == (found.ok, found.found)
        free.listen()
        assert checks(tmp_path, address)["ray cluster"].ok is True


def test_each_port_is_listed_with_whether_it_asks_for_a_token_and_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", (Port(number, "Ray's head", True), Port(None, "Ray's metrics", False)))
        found = checks(tmp_path)
    assert found[f"port {number}"].found == "Ray's head; requires Ray's token; in use here"
    assert found["port any"].found == "Ray's metrics; answers without a token"


def test_a_cluster_without_a_token_is_advised_against_and_tls_without_its_files_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert checks(tmp_path, "127.0.0.1:1")["ray token"].ok is None
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert checks(tmp_path, "127.0.0.1:1")["ray token"].ok is True
    monkeypatch.setenv("RAY_USE_TLS", "1")
    for name in doctor.TLS_FILES:
        monkeypatch.setenv(name, str(tmp_path / "absent" if "KEY" in name else __file__))
    found = checks(tmp_path)["ray tls"]
    assert (found.ok, found.found) == (False, "on, without RAY_TLS_SERVER_KEY")


def test_a_session_folder_too_long_for_a_socket_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 100)))
    found = checks(tmp_path, None)["ray session"]
    assert found.ok is False
    assert "shorter path" in found.advice


@pytest.mark.parametrize(("variable", "code"), [("TMPDIR", 0), ("RAY_TMPDIR", 1)])
def test_a_long_folder_for_temporary_files_does_not_end_in_rays_words(
    variable: str, code: int, shell: Shell, tmp_path: Path
) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    shell.env[variable] = str(folder)
    lines = refusals(shell("run", "toys", "parts=1", "--address", "local", code=code).stderr)
    if code:
        assert lines[-1].startswith(f"engram: RAY_TMPDIR is {folder}; it must have at most ")
    assert list(folder.iterdir()) == []


def test_data_that_is_not_there_is_no_fault_and_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    found = checks(tmp_path)
    assert found["data mnist"].ok is None
    assert "ENGRAM_DATA" in found["data mnist"].advice
    assert found["data digits"].ok is True


def test_a_needed_package_that_is_absent_is_bad_and_a_useful_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("ray", "mlflow") else real(name))
    found = checks(tmp_path)
    assert (False, install_command([RAY])) == (found["ray"].ok, found["ray"].advice)
    assert found["mlflow"].ok is None


def test_the_doctor_loads_neither_torch_nor_ray(tmp_path: Path) -> None:
    script = (
        "import sys; from orchestrator.doctor import examine; list(examine(sys.argv[1], 'none')); "
        "print([name for name in ('torch', 'ray', 'mlflow', 'pandas') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", script, str(tmp_path / "store")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize(("count", "said"), [(12, "12 bytes"), (25_300_000_000, "25.3 GB"), (4.2e12, "4.2 TB")])
def test_sizes_are_said_as_people_say_them(count: float, said: str) -> None:
    assert said == format_size(count)


def test_a_tracking_server_that_is_away_is_no_fault_and_its_password_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:secret@127.0.0.1:1")
    found = checks(tmp_path)["tracking"]
    assert (found.ok, found.found) == (None, "http://127.0.0.1:1 does not answer")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    found = checks(tmp_path)["tracking"]
    assert (True, f"{tmp_path}/mlflow/mlflow.db, not created yet") == (found.ok, found.found)
