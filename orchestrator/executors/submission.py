"""Handing a run to a cluster through Ray's job server: the command, the files that travel with it, how it goes there.

(Ray calls such a program a "job"; here it is a submission, since a job is one call of a task.)
"""

from __future__ import annotations

import logging
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import ClusterError
from orchestrator.spec.config_parts import walk
from tasks.models.custom import Factory, Named, is_own, sources

COMMAND = 'PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" engram'  # for the modules that travel in the working directory
BEGIN_SECONDS = 120.0  # for the job server to begin a submission; the first one on a node takes long
LOOK_SECONDS = 1.0
TALKATIVE = ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging")  # they tell of every upload
NO_AGENT = "No available agent"  # what a job server answers whose node's agent is not up yet
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
LAST_LINES = 3  # of its output that are told of a submission that failed at once


@dataclass(frozen=True)
class Submission:
    """A run that a cluster was given: its name there, the state it is in, and what it runs."""

    name: str
    address: str
    state: str
    entrypoint: str


def job_server(address: str) -> Any:
    """A client of the job server at http://HOST:PORT. Raises ClusterError, in one line."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClusterError(
            f"{address!r} is no address of a job server; give http://HOST:PORT, of Ray's dashboard (8265)"
        )
    from ray.job_submission import JobSubmissionClient

    client = _reached(address, lambda: JobSubmissionClient(address))
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    return client


def factory_files(configs: Iterable[Any]) -> dict[str, Path]:
    """The Python files of the users' own networks that these configs name, by their names below the import path."""
    found: dict[str, Path] = {}
    for config in configs:
        for _, part in walk(config):
            own = isinstance(part, Named) and is_own(part.name)
            factory = Factory.parse(str(part)) if own else getattr(part, "factory", None)
            if isinstance(factory, Factory):
                found |= sources(factory)
    return found


def submit(
    address: str, arguments: Iterable[str], files: Mapping[str, Path], store: str, environment: Mapping[str, str]
) -> Submission:
    """Hand a command of `engram` to the job server, with the files that it needs in its working directory.

    Ray keeps the files by the digest of their content and gives them to every worker. Returns once the command has
    begun, or after BEGIN_SECONDS. Raises ClusterError, in one line, where it cannot be handed over or ends at once.
    """
    client = job_server(address)
    entrypoint = f"{COMMAND} {shlex.join(arguments)}"
    with tempfile.TemporaryDirectory(prefix="engram-submit-") as folder:
        for name, path in files.items():
            there = Path(folder, name)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, there)
        name = f"engram-{secrets.token_hex(4)}"
        runtime_env = {"env_vars": dict(environment)} | ({"working_dir": folder} if files else {})

        def hand_over() -> None:
            client.submit_job(
                entrypoint=entrypoint, submission_id=name, runtime_env=runtime_env, metadata={"engram_store": store}
            )

        _hand_over(address, hand_over, time.monotonic() + BEGIN_SECONDS)
    state = _await(client, address, name, lambda state: state != "PENDING", BEGIN_SECONDS)
    if state == "FAILED":
        said = [line for line in _reached(address, lambda: client.get_job_logs(name)).splitlines() if line.strip()]
        why = " | ".join(said[-LAST_LINES:]) or _reached(address, lambda: client.get_job_info(name)).message
        raise ClusterError(f"submission {name} at {address} ended at once: {why}")
    return Submission(name, address, state, entrypoint)


def _hand_over(address: str, request: Callable[[], object], end: float) -> None:
    """Hand a submission over, again until the monotonic time `end` where a head has only just started."""
    while True:
        try:
            _reached(address, request)
            return
        except ClusterError as error:
            if NO_AGENT not in str(error) or time.monotonic() > end:
                raise
        time.sleep(LOOK_SECONDS)


def wait(address: str, name: str, show: Callable[[str], object]) -> int:
    """Pass on what a submission prints until it has ended; return its exit code."""
    client = job_server(address)
    shown = 0
    while True:
        info = _reached(address, lambda: client.get_job_info(name))
        said = _reached(address, lambda: client.get_job_logs(name))
        complete = said if info.status in ENDED else said[: said.rfind("\n") + 1]
        for line in complete[shown:].splitlines():
            show(line)
        shown = max(shown, len(complete))
        if info.status in ENDED:
            code = info.driver_exit_code
            return code if code is not None else int(info.status != "SUCCEEDED")
        time.sleep(LOOK_SECONDS)


def _await(client: Any, address: str, name: str, condition: Callable[[str], bool], seconds: float) -> str:
    """The state of a submission once this holds of it, or after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        state = str(_reached(address, lambda: client.get_job_status(name)).value)
        if condition(state) or time.monotonic() > end:
            return state
        time.sleep(LOOK_SECONDS / 4)


def _reached(address: str, request: Callable[[], Any]) -> Any:
    """What the job server answers. Raises ClusterError, in one line, where it does not."""
    try:
        return request()
    except Exception as error:  # Ray raises RuntimeError, ConnectionError and requests' own
        text = " ".join(str(error).split())
        if "oken" in text or "401" in text or "403" in text:
            raise ClusterError(
                f"the job server at {address} refuses the token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN "
                "(or RAY_AUTH_TOKEN_PATH) as the cluster has them"
            ) from error
        raise ClusterError(
            f"the job server at {address} cannot be used: {text[:300]}; is it Ray's dashboard (port 8265), started "
            "with --include-dashboard=true, and open to this machine?"
        ) from error
