"""The process of one rank: it computes jobs of a task together with the other ranks, and answers its parent.

`tasks.worker.process_group` is the parent. Every rank computes the same jobs. The first one returns the results. Then
all wait for the next jobs.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from tasks.contract.job import Function, Inputs, Many, load_function, marks
from tasks.user_code.acceptance import use_stand_ins
from tasks.worker import checkpoints, compute_context, hardware
from tasks.worker.checkpoints import Link
from tasks.worker.compute_context import ComputeContext
from tasks.worker.ranks import Ranks, set_ranks

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

# A rank may wait for another one that reads data. The group ends if a rank dies, so the limit only has to be long.
PATIENCE = timedelta(days=1)
IDLE = 90.0  # seconds without jobs after which a rank ends; the parent uses it again for a shorter time
SEED = 67280421310721  # torch's seed of a new process


@dataclass(frozen=True)
class RankWork:
    """What a rank computes: several jobs of one task."""

    rank: int
    size: int
    rendezvous: str  # path of the file through which the ranks find each other
    function: str  # of the task, as `module:name`
    configs: Sequence[Any]
    inputs: Sequence[Inputs]
    context: tuple[compute_context.StrategyName, int | None]  # `way` and `members` of the compute context
    states_requested: Sequence[bool]  # by job: whether it leaves its state
    stand_ins: dict[str, str]


def run_rank() -> None:
    """Compute what the parent sends, until it sends nothing. The last argument is the descriptor of its pipe."""
    parent = Connection(int(sys.argv[-1]))
    try:
        while parent.poll(IDLE):
            _take_settings(**parent.recv())
            _compute(parent, pickle.loads(parent.recv_bytes()))
        os._exit(0)
    except (EOFError, BrokenPipeError):  # the parent has died, and the guard ends this process
        os._exit(1)
    except BaseException as error:
        parent.send(("failed", *_describe_error(error)))
        os._exit(1)  # without waiting for collective operations


def _take_settings(paths: Sequence[str], folder: str, environment: Mapping[str, str]) -> None:
    """Import and read files as the parent does."""
    sys.path[:] = paths
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def _compute(parent: Connection, work: RankWork) -> None:
    _join_group(work)
    is_first = work.rank == 0

    def advance(networks: float) -> None:
        if is_first:
            parent.send(("advance", networks))

    def read_states(index: int) -> Iterator[bytes]:
        number = 0
        while True:
            parent.send(("state", index, number))
            state = parent.recv_bytes()
            if not state:
                return
            yield state
            number += 1

    def leave(index: int, state: bytes) -> None:
        if is_first:
            parent.send(("leave", index, state))

    links = []
    for index, is_requested in enumerate(work.states_requested):
        links.append(Link(partial(read_states, index), partial(leave, index) if is_requested else None))
    way, members = work.context
    function = load_function(work.function)
    many = marks(function).many or _one_by_one(function)
    with ExitStack() as contexts:
        notes = contexts.enter_context(compute_context.use_context(ComputeContext(way, members, advance=advance)))
        contexts.enter_context(checkpoints.use_links(links))
        contexts.enter_context(use_stand_ins(work.stand_ins))
        hardware.reset_peak_memory()
        for index, outcome in many(work.configs, work.inputs):
            is_needed = is_first or isinstance(outcome, Exception)
            memory = hardware.peak_memory()
            parent.send(("outcome", index, outcome if is_needed else None, dict(notes), memory))
            parent.recv_bytes()  # once all ranks have ended this job
            compute_context.note()
            del outcome
    _forget()
    parent.send(("done",))


def _forget() -> None:
    """Free the memory of the jobs that have ended and forget their random state, neither of which concerns others."""
    import numpy as np
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    torch.manual_seed(SEED)
    random.seed()
    np.random.seed()  # the code of a user may draw from it
    sys.stdout.flush()
    sys.stderr.flush()


def _one_by_one(function: Function) -> Many:
    """Return the function that computes several jobs of a task in turn."""

    def many(configs: Sequence[Any], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
        for index, (config, tables) in enumerate(zip(configs, inputs, strict=True)):
            yield index, function(config, tables)

    return many


def _join_group(work: RankWork) -> None:
    """Join the other ranks once: with NCCL if there is a GPU for each rank, and with Gloo without GPUs."""
    import torch
    from torch import distributed

    if distributed.is_initialized():
        return
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if 0 < gpus < work.size:
        raise ValueError(f"{work.size} processes cannot train one model on {gpus} GPUs; each needs its own")
    device: torch.device | None = None
    backend = "gloo"
    if gpus:
        device = torch.device("cuda", work.rank)
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(
        backend,
        store=distributed.FileStore(work.rendezvous, work.size),
        rank=work.rank,
        world_size=work.size,
        timeout=PATIENCE,
        device_id=device,
    )
    set_ranks(Ranks(work.rank, work.size))


CONSEQUENCES = ("gloo", "NCCL", "nccl", "Connection closed by peer", "Connection reset by peer", "Broken pipe")


def _describe_error(error: BaseException) -> tuple[BaseException | None, str, bool]:
    """Return the error, if it can be sent, its traceback, and whether it may only follow from another rank's end."""
    text = "".join(traceback.format_exception(error))
    follows = isinstance(error, RuntimeError) and any(word in str(error) for word in CONSEQUENCES)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None, text, follows
    return error, text, follows
