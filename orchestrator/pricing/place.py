"""Where jobs run if the user names no address."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping

from orchestrator.executors import environment
from orchestrator.planning.plan import Plan
from orchestrator.pricing.hardware import rates_of_model
from orchestrator.pricing.price import predict_seconds
from orchestrator.spec.options import Execution
from tasks.contract.job import marks
from tasks.worker.hardware import available_memory

# Starting Ray takes 5 to 10 s of processor time and 1 GB of memory. A longer run may later need its dashboard, metrics
# and queue.
POOL_SECONDS = 60.0


def choose_address(
    execution: Execution, plan: Plan, missing_keys: Collection[str], mean_seconds: Mapping[str, float]
) -> str | None:
    """Return the address for these jobs: the user's, or `pool` for a short run that needs neither Ray nor a GPU.

    `mean_seconds` gives the seconds per job by group, from runs in this store. Returns None for a cluster on this
    machine.
    """
    if execution.address is not None or execution.dashboard or sys.platform != "linux" or _uses_ray():
        return execution.address
    if _wants_gpu(execution, plan, missing_keys):
        return None
    if predict_seconds(plan, missing_keys, mean_seconds, environment.count_processors()) < POOL_SECONDS:
        return "pool"
    return None


def device_memory() -> int:
    """Return the memory in which a job here may keep images: that of its GPU, if known and smaller, or the host's."""
    memory = available_memory()
    gpu = rates_of_model(environment.gpu_model())
    return memory if gpu is None else min(memory, int(gpu.memory))


def modules_of(plan: Plan, keys: Collection[str]) -> list[str]:
    """Return the modules that a pool imports before it forks the workers for these jobs: Engram's own,
    torch and scipy."""
    modules = {"scipy.stats"}  # for intervals and p-values
    for key in keys:
        function = plan.jobs[key].function
        if function.__module__.partition(".")[0] == "tasks":
            modules.add(function.__module__)
        if marks(function).gpus > 0 or marks(function).trains:
            modules.add("torch")
    return sorted(modules)


def _uses_ray() -> bool:
    """Whether this process is connected to a Ray cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _wants_gpu(execution: Execution, plan: Plan, keys: Collection[str]) -> bool:
    """Whether one of these jobs states or would use a GPU of this machine, or a GPU was asked for."""
    if any(resources.gpus and key in keys for key, resources in plan.resources.items()):
        return True
    if execution.gpus == "none":
        return False
    if execution.gpus == "wait" or execution.gpus_per_job > 1:
        return True
    return any(marks(plan.jobs[key].function).gpus > 0 for key in keys) and environment.count_gpus() > 0
