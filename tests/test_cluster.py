"""Ray's launcher accepts cluster.yaml. Its machines get everything that an audit needs, and no secret."""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import subprocess
import sys
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.support.s3 import BUCKET, Server
from tests.support.shell import Shell
from tests.support.waiting import HANGING

ROOT = Path(__file__).resolve().parents[1]
GIVEN = {
    "ENGRAM_DATA": r"\S+",
    "MLFLOW_TRACKING_URI": r"\S+",
    "MLFLOW_EXPERIMENT_NAME": "engram",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN_PATH": r"\S+/\.ray/auth_token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}


VARIANTS: dict[str, dict[str, str]] = {  # each provider's configuration, and where the store of its machines is
    "cluster.yaml": {"ENGRAM_STORE": r"s3://\S+", "AWS_REGION": r"[a-z0-9-]+"},
    "examples/clusters/gcp.yaml": {"ENGRAM_STORE": r"/\S+", "ENGRAM_RUNS": r"/\S+"},
    "examples/clusters/on_premises.yaml": {"ENGRAM_STORE": r"/\S+", "ENGRAM_RUNS": r"/\S+"},
}


def validate_cluster(path: str) -> dict[str, Any]:
    """The configuration as the launcher uses it, with Ray's defaults, after Ray's own validation."""
    config: dict[str, Any] = prepare_config(yaml.safe_load((ROOT / path).read_text()))
    validate_config(config)
    return config


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return validate_cluster("cluster.yaml")


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each provider's configuration."""
    return validate_cluster(request.param)


def test_ray_accepts_it_without_its_own_installation(variant: dict[str, Any]) -> None:
    commands = [*variant["setup_commands"], *variant["head_setup_commands"], *variant["worker_setup_commands"]]
    assert [command for command in commands if "anaconda" in command or "ray-wheels" in command] == []
    assert [command for command in commands if "pip install" in command and "engram/venv" not in command] == []


def test_head_computes_nothing_and_machines_have_gpus(cluster: dict[str, Any]) -> None:
    types = cluster["available_node_types"]
    assert set(types) == {"head", "gpu.spot", "gpu.on_demand"}
    assert types[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    markets = {}
    for name, node_type in types.items():
        markets[name] = node_type["node_config"].get("InstanceMarketOptions")
    assert markets == {"head": None, "gpu.spot": {"MarketType": "spot"}, "gpu.on_demand": None}
    assert types["gpu.spot"]["min_workers"] == 0
    assert types["gpu.on_demand"]["min_workers"] == 0
    assert 0 < cluster["idle_timeout_minutes"] <= 30
    assert len({node_type["node_config"]["ImageId"] for node_type in types.values()}) == 1
    assert all(
        node_type["node_config"]["IamInstanceProfile"] for node_type in types.values()
    )  # else no store can be reached


@pytest.mark.parametrize("which", ["head", "worker"])
@pytest.mark.parametrize("path", VARIANTS)
def test_environment_is_set_before_ray_starts(path: str, which: str, tmp_path: Path) -> None:
    """Run the start commands, up to Ray's own, with a temporary home folder."""
    *before, last = validate_cluster(path)[f"{which}_start_ray_commands"]
    assert "ray start" in last
    stub = tmp_path / "engram" / "venv" / "bin"
    stub.mkdir(parents=True)
    for command in (*before, last):
        (stub / "ray").write_text("#!/bin/sh\necho ray $@\nenv\n")
        (stub / "ray").chmod(0o755)
        done = subprocess.run(
            ["bash", "-c", command],
            env={"HOME": str(tmp_path), "PATH": os.defpath, "RAY_HEAD_IP": "10.0.0.1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    for name, pattern in {**GIVEN, **VARIANTS[path]}.items():
        assert re.search(rf"^{name}={pattern}$", done.stdout, re.MULTILINE), name
    assert f"RAY_AUTH_TOKEN_PATH={tmp_path}/.ray/auth_token\n" in done.stdout


@pytest.mark.parametrize("path", VARIANTS)
def test_token_is_a_mounted_file_without_secrets_inside(path: str) -> None:
    text = (ROOT / path).read_text()
    cluster = validate_cluster(path)
    assert cluster["file_mounts"][f"/home/{cluster['auth']['ssh_user']}/.ray/auth_token"] == "~/.ray/auth_token"
    assert "RAY_AUTH_TOKEN=" not in text
    assert re.search(r"[0-9a-f]{32}|AKIA[0-9A-Z]{16}|secret_access_key|password", text, re.IGNORECASE) is None


def test_every_machine_installs_pinned_packages_and_engram(variant: dict[str, Any]) -> None:
    mounts = {}
    for remote, local in variant["file_mounts"].items():
        mounts[remote.rpartition("/")[2]] = local
    assert tuple(mounts[name] for name in ("requirements.lock", "dist", "auth_token")) == (
        "./requirements.lock",
        "./dist",
        "~/.ray/auth_token",
    )
    assert (ROOT / "requirements.lock").exists()
    installs = []
    for command in variant["setup_commands"]:
        if "pip install" in command:
            installs.append(command)
    assert "--require-hashes" in installs[0]
    assert "dist/*.whl" in installs[1]


def test_requirements_include_the_library_for_aws() -> None:
    assert "boto3==" in (ROOT / "requirements.lock").read_text()


AWS = """#!{python}
# `aws s3 sync` between a folder and a stand-in for the bucket.
import shutil, sys
from pathlib import Path
*_, origin, target = sys.argv
folders = [Path(each.replace("s3:/", {bucket!r})) for each in (origin, target)]
if folders[0].exists():
    shutil.copytree(*folders, dirs_exist_ok=True)
"""


class Index(BaseHTTPRequestHandler):
    """A package index of one project, which tells pip to keep files as PyPI does."""

    files: ClassVar[dict[str, bytes]] = {}
    loaded: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if name:
            self.loaded.append(name)
        page = "".join(f'<a href="/files/{file_name}">{file_name}</a>' for file_name in self.files).encode()
        content = self.files[name] if name else page
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if name else "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "max-age=365000000, immutable" if name else "no-cache")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def a_wheel(name: str) -> bytes:
    content = io.BytesIO()
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(content, "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    return content.getvalue()


@pytest.mark.slow  # two environments, made by pip as the machines make theirs
def test_packages_are_downloaded_once_and_then_shared(cluster: dict[str, Any], tmp_path: Path) -> None:
    """Run the setup commands unchanged for a head and a machine. apt, cloud-init and aws are stand-ins."""
    wheel = a_wheel("pinned")
    Index.files = {"pinned-1.0-py3-none-any.whl": wheel}
    Index.loaded = []
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sudo", "cloud-init", "aws"):
        script = "#!/bin/sh\n"
        if name == "aws":
            script = AWS.format(python=sys.executable, bucket=str(tmp_path / "bucket"))
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    (tools / "python3").symlink_to(sys.executable)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        for machine in ("head", "worker"):
            home = tmp_path / machine
            (home / "engram" / "dist").mkdir(parents=True)
            (home / "engram" / "dist" / "ours-1.0-py3-none-any.whl").write_bytes(a_wheel("ours"))
            lock = f"pinned==1.0 --hash=sha256:{hashlib.sha256(wheel).hexdigest()}\n"
            (home / "engram" / "requirements.lock").write_text(lock)
            env = {
                "HOME": str(home),
                "PATH": f"{tools}:{os.defpath}",
                "PIP_INDEX_URL": f"http://127.0.0.1:{server.server_port}/simple/",
                "PIP_TRUSTED_HOST": "127.0.0.1",  # otherwise pip caches no file downloaded without TLS
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            }
            for command in (*cluster["setup_commands"], *cluster[f"{machine}_setup_commands"]):
                done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True)
                assert done.returncode == 0, (command, done.stderr)
            installed = set()
            for path in (home / "engram" / "venv" / "lib").glob("*/site-packages/*.py"):
                installed.add(path.name)
            assert installed >= {"pinned.py", "ours.py"}
            assert Index.loaded == ["pinned-1.0-py3-none-any.whl"]
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_ray_launches_machines_on_a_simulated_aws(
    cluster: dict[str, Any], s3: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import boto3
    from ray.autoscaler._private.commands import _bootstrap_config
    from ray.autoscaler._private.providers import _get_node_provider

    monkeypatch.setenv("HOME", str(tmp_path))  # for the key pair
    for profile in ("engram-head", "engram-worker"):
        boto3.client("iam", "us-east-1", endpoint_url=s3.url).create_instance_profile(InstanceProfileName=profile)
    config = _bootstrap_config(yaml.safe_load((ROOT / "cluster.yaml").read_text()), no_config_cache=True)
    types = config["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    for name in ("gpu.spot", "gpu.on_demand"):
        assert {node_type: types[name]["resources"][node_type] for node_type in ("CPU", "GPU")} == {"CPU": 8, "GPU": 1}
    provider = _get_node_provider(config["provider"], config["cluster_name"])
    for name, node_type in types.items():
        provider.create_node(dict(node_type["node_config"]), {"ray-user-node-type": name}, 1)
    instances = boto3.client("ec2", config["provider"]["region"], endpoint_url=s3.url).describe_instances()
    machines = []
    for reservation in instances["Reservations"]:
        machines.extend(reservation["Instances"])
    assert sorted(machine["InstanceType"] for machine in machines) == ["g5.2xlarge", "g5.2xlarge", "m6i.xlarge"]
    assert [machine["InstanceLifecycle"] for machine in machines if "InstanceLifecycle" in machine] == ["spot"]


NODES = """
import sys
from ray.cluster_utils import Cluster
node = {"object_store_memory": 80 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 0, "include_dashboard": False})
print(cluster.address, flush=True)
worker = None
for line in sys.stdin:
    if worker is not None:
        cluster.remove_node(worker, allow_graceful=False)
    if line.strip() == "end":
        break
    worker = cluster.add_node(**node, num_cpus=2)
    print("started", flush=True)
cluster.shutdown()
"""


@pytest.mark.slow
def test_audit_survives_the_loss_of_spot_machines(s3: Server, tmp_path: Path) -> None:
    """A head without processors, the token in a file, results in a bucket. A machine joins late, and one is killed."""
    (tmp_path / "auth_token").write_text(secrets.token_hex(32))
    shell = Shell(tmp_path)
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "auth_token")}
    shell.env |= s3.env | token | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_period_ms": "500"}
    shell.env.pop("RAY_AUTH_TOKEN", None)
    nodes = subprocess.Popen(
        [sys.executable, "-c", NODES],
        env=shell.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert nodes.stdin is not None
    assert nodes.stdout is not None
    try:
        store_and_address = ("--store", f"s3://{BUCKET}/audits", "--address", nodes.stdout.readline().strip())
        run = shell.start("run", "toys", "parts=20", "trouble=wait", "at=3", f"folder={tmp_path}", *store_and_address)
        shell.until(lambda: bool(s3.names("audits/runs")), run)
        assert s3.names("audits/results") == []
        print("start", file=nodes.stdin, flush=True)
        assert nodes.stdout.readline().strip() == "started"
        shell.until(lambda: len(s3.names("audits/results")) > 2, run)
        shell.await_begun(2, run)
        print("take away, and start another", file=nodes.stdin, flush=True)
        assert nodes.stdout.readline().strip() == "started"
        shell.go()
        out, err = run.communicate(timeout=HANGING)
    finally:
        nodes.communicate("end\n", timeout=HANGING)
    assert run.returncode == 0, err
    assert "21 of 21 jobs stored, 21 computed now, 0 failed" in out
    assert "its node went away" in err
    numbers = (tmp_path / "computed.log").read_text().split()
    assert len(set(numbers)) == 20
    assert len(numbers) <= 24  # repeated: the jobs of the removed machine
