"""Every private Ray name that Engram uses, checked when this module is imported.

Ray has no public API for these operations and moves private names between versions. `LOWEST` and `NEXT` are the bounds
in pyproject.toml. `bench/ray_versions.py` runs an audit with the lowest and the newest version in that range.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray import exceptions

from orchestrator.errors import ClusterError

LOWEST = "2.52"  # lowest tested version
NEXT = "2.61"  # first untested version
NAMES: Mapping[str, Sequence[str]] = {  # by module
    "ray._raylet": (
        "AuthenticationTokenLoader.instance",
        "Config.initialize",
        "GcsClient",
        "InnerGcsClient.get_all_node_info",
        "InnerGcsClient.get_cluster_status",
    ),
    "ray._private.ray_constants": ("ENABLE_RAY_CLUSTER", "ENABLE_RAY_CLUSTERS_ENV_VAR"),
    "ray._private.services": ("canonicalize_bootstrap_address",),
    "ray._private.worker": ("get_dashboard_url", "global_worker", "print_to_stdstream"),
    "ray.core.generated.autoscaler_pb2": ("GetClusterStatusReply",),
}
TUNE_NAMES: Mapping[str, Sequence[str]] = {
    "ray.tune.execution.class_cache": ("DEFAULT_ENV_VARS",)
}  # loaded only by searches
UPLOAD_LOGGERS = ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging")  # log every upload


def find_missing(names: Mapping[str, Sequence[str]], version: str) -> str:
    """Return a line with the first of these names that is missing in this Ray version.

    Returns an empty string if all are present.
    """
    for module, attributes in names.items():
        for attribute in attributes:
            try:
                operator.attrgetter(attribute)(importlib.import_module(module))
            except (ImportError, AttributeError):
                return (
                    f"Ray {version} has no {module}.{attribute}, which Engram needs; install Ray {LOWEST} or later, "
                    f"below {NEXT}: pip install 'ray[default,tune]>={LOWEST},<{NEXT}'"
                )
    return ""


if _version_problem := find_missing(NAMES, ray.__version__):
    raise ClusterError(_version_problem)

# After the check, whose message names the versions to install.
from ray._private import ray_constants, services, worker  # noqa: E402
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # noqa: E402

_raylet: Any = importlib.import_module("ray._raylet")  # compiled, without type information


def connect_to_head(address: str) -> None:
    """Connect to a cluster's head and drop the connection.

    With a wrong token this fails at once, whereas `ray.init` takes 20 s.
    """
    _raylet.GcsClient(address=address)


def read_token() -> None:
    """Make Ray reread its authentication mode and token from the environment."""
    _raylet.Config.initialize("")
    _raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def listen_on_loopback() -> Iterator[dict[str, str]]:
    """Make a cluster started inside the block listen on the loopback interface only. Yields the variables it needs.

    Ray reads the variable when it is imported, so the constant is set as well.
    """
    original_setting = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield {ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0"}
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = original_setting


def local_address() -> str:
    """Return the address of a cluster running on this machine. Raises ConnectionError if there is none."""
    return str(services.canonicalize_bootstrap_address("auto"))


def silence_workers() -> None:
    """Suppress Ray's messages about dead workers, which it prints to stdout even without log_to_driver."""
    worker.print_to_stdstream = lambda *_, **__: None


def dashboard_url() -> str | None:
    """Return the URL of the cluster's dashboard. Returns None or an empty string if it has none."""
    url: str | None = worker.get_dashboard_url()
    return url


def read_nodes(seconds: float) -> list[Any]:
    """Read the cluster's nodes from the head's table. Raises RpcError if the head does not answer in time."""
    return list(worker.global_worker.gcs_client.get_all_node_info(timeout=seconds).values())


def read_autoscaling_state(seconds: float) -> Any | None:
    """Read the state of the cluster's autoscaler. Returns None if the head does not answer within this many seconds."""
    reply = GetClusterStatusReply()
    try:
        reply.ParseFromString(worker.global_worker.gcs_client.get_cluster_status(timeout_s=seconds))
    except exceptions.RpcError:
        return None
    return reply.autoscaling_state


def trial_variables() -> MutableMapping[str, str]:
    """Return the variables that Tune sets for trial actors. Raises ClusterError if this Ray version has none."""
    missing_names = find_missing(TUNE_NAMES, ray.__version__)
    if missing_names:
        raise ClusterError(missing_names)
    from ray.tune.execution import class_cache

    variables: MutableMapping[str, str] = class_cache.DEFAULT_ENV_VARS
    return variables
