"""The machines of a Ray cluster, and whether its autoscaler may start some with a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray import exceptions
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

LABEL = "ray.io/node-group"  # of machines that Ray's launcher, or KubeRay, has started
ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class Machine:
    """A machine of a cluster, with its resources and labels."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]


def lack_gpus(gcs_client: Any) -> bool:
    """Whether the autoscaler says that no machine it may start has a GPU, while calls ask for one.

    Ray does not tell which types of machines there are, but which of the calls that wait none of them can run (as
    `ray status` shows it). That is believed only while no machine is being started.
    """
    reply = GetClusterStatusReply()
    try:
        reply.ParseFromString(gcs_client.get_cluster_status(timeout_s=ANSWER_SECONDS))
    except exceptions.RpcError:
        return False
    state = reply.autoscaling_state
    if state.pending_instances or state.pending_instance_requests:
        return False
    infeasible = [dict(request.resources_bundle) for request in state.infeasible_resource_requests]
    return any(bundle.keys() == {"GPU"} and bundle["GPU"] <= 1 for bundle in infeasible)
