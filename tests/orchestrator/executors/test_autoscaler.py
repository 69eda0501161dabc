"""Ray's own autoscaler with a real head. The machines are local processes, as in Ray's own tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("ray")

from ray._private.services import get_node_ip_address
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID, FAKE_HEAD_NODE_TYPE

from orchestrator.executors.ray import RayExecutor
from orchestrator.store import open_store
from tasks.contract.job import Job
from tests.conftest import OBJECT_STORE_BYTES
from tests.orchestrator.executors import jobs
from tests.orchestrator.executors.test_ray import driven, wanted_gpus
from tests.support.ports import free_port
from tests.support.ray_head import ray_head
from tests.support.shell import PATHS
from tests.support.waiting import wait_until

PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
LISTS = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")


def configuration(address: str) -> dict[str, Any]:
    """A head that computes nothing and at most one machine, which Ray believes to have a GPU."""
    gpu = {"CPU": 1, "GPU": 1, "object_store_memory": OBJECT_STORE_BYTES}
    return {
        "cluster_name": "processes",
        "max_workers": 1,
        "idle_timeout_minutes": 60,
        "upscaling_speed": 1.0,
        "provider": {
            "type": "external",  # by name Ray would look for defaults that its wheel does not contain
            "module": PROVIDER,
            "gcs_address": address,
            "head_node_id": FAKE_HEAD_NODE_ID,
            "launch_multiple": True,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "auth": {"ssh_user": "nobody"},
        "head_node_type": FAKE_HEAD_NODE_TYPE,
        "available_node_types": {
            FAKE_HEAD_NODE_TYPE: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "gpu": {"resources": gpu, "node_config": {}, "min_workers": 0, "max_workers": 1},
        },
        **{f"{name}_commands": [] for name in LISTS},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
    }


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster whose head was started for an autoscaler, as Ray's launcher starts it."""
    address = f"{get_node_ip_address()}:{free_port()}"
    described = tmp_path / "cluster.json"
    log = tmp_path / "started.log"
    described.write_text(json.dumps(configuration(address)))
    settings = {
        "PYTHONPATH": PATHS,
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_NODE_TYPE_NAME": FAKE_HEAD_NODE_TYPE,
        "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_health_check_period_ms": "500",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    }
    options = ("--num-cpus=0", "--include-dashboard=false", f"--autoscaling-config={described}")
    with ray_head(int(address.rpartition(":")[2]), log, settings, *options):
        yield address


def daemon_of_machine(address: str, number: int) -> psutil.Process:
    """The raylet of a machine in the cluster at this address."""
    node = f"{FAKE_HEAD_NODE_ID[:-5]}{number:05}"
    daemons = (process for process in psutil.process_iter(["name", "cmdline"]) if process.info["name"] == "raylet")
    # One that another test has killed has no command line any more.
    lines = ((process, " ".join(process.info["cmdline"] or ())) for process in daemons)
    return next(process for process, line in lines if node in line and address in line)


@pytest.mark.slow
def test_rays_autoscaler_provides_and_replaces_a_gpu(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    store = open_store(tmp_path / "store")
    executor = RayExecutor(store.location, address=address)
    with driven(executor, store, *(Job(jobs.held_on_gpu, jobs.Number(number)) for number in range(3))) as (plan, _):
        wait_until(lambda: {1.0} == {*wanted_gpus(address)})  # no call asks for a processor
        wait_until(lambda: bool(list(tmp_path.glob("began-*"))))
        next(tmp_path.glob("began-*")).unlink()
        daemon_of_machine(address, 1).kill()
        wait_until(lambda: bool(list(tmp_path.glob("began-*"))))
        (tmp_path / "go").touch()
    assert [store.read(key)["gpu"][0].as_py() for key in plan.roots["summary"]] == ["0"] * 3
    assert daemon_of_machine(address, 2).is_running()
