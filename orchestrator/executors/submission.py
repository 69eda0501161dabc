"""Submits a run to a cluster through Ray's job server: the command, its files, and its state.

(Ray calls such a program a "job". Here it is a submission, because a job is one invocation of a task.)
"""

from __future__ import annotations

import logging
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import ClusterError
from orchestrator.spec.config_parts import walk
from tasks.models.custom import Factory, Named, is_own, sources

# If Ray was started by its path, `engram` is next to the Python executable with which Ray's node, the parent of this
# shell's parent, starts its workers.
FIND_COMMAND = (
    "command -v engram >/dev/null || "
    'PATH="$PATH:$(dirname "$(tr "\\0" "\\n" < /proc/$(cut -d " " -f 4 /proc/$PPID/stat)/cmdline | '
    'sed -n "s/^--python_worker_command=\\([^ ]*\\).*/\\1/p")")"; '
)
COMMAND = f'{FIND_COMMAND}PYTHONPATH="$PWD${{PYTHONPATH:+:$PYTHONPATH}}" engram'  # for modules in the working directory
BEGIN_SECONDS = 120.0  # time limit for a submission to begin; the first one on a node takes long
LOOK_SECONDS = 1.0
NO_AGENT = "No available agent"  # answer of a job server whose node agent has not started yet
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
REFUSED = re.compile(r"[Tt]oken|status code 40[13]")  # in a job server's answer to unauthorised requests
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}  # for a submission; the cluster has its own data and credentials
LAST_LINES = 3  # output lines in the error message of a submission that failed at once


class JobServer:
    """Ray's job server at http://HOST:PORT. Failed requests raise ClusterError."""

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            parts = urlsplit(address)
            is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_server = False
        if not is_server:
            raise ClusterError(
                f"{address!r} is not an address of a job server; give http://HOST:PORT of Ray's dashboard (port 8265)"
            )
        from ray.job_submission import JobSubmissionClient

        from orchestrator.executors.private_ray import UPLOAD_LOGGERS

        self._client = self._ask(lambda: JobSubmissionClient(address))
        for name in UPLOAD_LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)

    def submit(self, arguments: Iterable[str], files: Mapping[str, Path], store: str) -> tuple[str, str]:
        """Submit an `engram` command, with the files that it needs in its working directory.

        Ray stores the files by content digest and copies them to every worker. Returns the name and state of the
        submission once the command has begun, or after BEGIN_SECONDS.
        """
        name = f"engram-{secrets.token_hex(4)}"
        end = time.monotonic() + BEGIN_SECONDS
        with tempfile.TemporaryDirectory(prefix="engram-submit-") as folder:
            for relative_path, path in files.items():
                target = Path(folder, relative_path)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
            runtime_env = {"env_vars": ENVIRONMENT} | ({"working_dir": folder} if files else {})
            self._hand_over(
                end,
                entrypoint=f"{COMMAND} {shlex.join(arguments)}",
                submission_id=name,
                runtime_env=runtime_env,
                metadata={"engram_store": store},
            )
        while (state := self._ask(lambda: self._client.get_job_status(name)).value) == "PENDING":
            if time.monotonic() > end:
                break
            time.sleep(LOOK_SECONDS / 4)
        if state == "FAILED":
            output_lines = [
                line for line in self._ask(lambda: self._client.get_job_logs(name)).splitlines() if line.strip()
            ]
            reason = (
                " | ".join(output_lines[-LAST_LINES:]) or self._ask(lambda: self._client.get_job_info(name)).message
            )
            raise ClusterError(f"submission {name} at {self.address} ended at once: {reason}")
        return name, str(state)

    def wait(self, name: str, show: Callable[[str], object]) -> int:
        """Show the output of a submission until it ends. Returns its exit code."""
        shown_characters = 0
        while True:
            info = self._ask(lambda: self._client.get_job_info(name))
            output = self._ask(lambda: self._client.get_job_logs(name))
            complete_lines = output if info.status in ENDED else output[: output.rfind("\n") + 1]
            for line in complete_lines[shown_characters:].splitlines():
                show(line)
            shown_characters = max(shown_characters, len(complete_lines))
            if info.status in ENDED:
                code = info.driver_exit_code
                return code if code is not None else int(info.status != "SUCCEEDED")
            time.sleep(LOOK_SECONDS)

    def _hand_over(self, end: float, **submission: Any) -> None:
        """Submit. If a head has only just started, retry until the monotonic time `end`."""
        while True:
            try:
                self._ask(lambda: self._client.submit_job(**submission))
                return
            except ClusterError as error:
                if NO_AGENT not in str(error) or time.monotonic() > end:
                    raise
            time.sleep(LOOK_SECONDS)

    def _ask(self, request: Callable[[], Any]) -> Any:
        try:
            return request()
        except Exception as error:  # RuntimeError, ConnectionError or an error from requests
            text = " ".join(str(error).split())
            if REFUSED.search(text):
                raise ClusterError(
                    f"the job server at {self.address} refuses the token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN "
                    "(or RAY_AUTH_TOKEN_PATH) to the cluster's values"
                ) from error
            raise ClusterError(
                f"the job server at {self.address} cannot be used: {text[:300]}; check that it is Ray's dashboard "
                "(port 8265), started with --include-dashboard=true, and open to this machine"
            ) from error


def factory_files(configs: Iterable[Any]) -> dict[str, Path]:
    """Return the Python files of the user's own networks in these configurations.

    Keys are paths relative to the import path.
    """
    files: dict[str, Path] = {}
    for config in configs:
        for _, part in walk(config):
            is_own_network = isinstance(part, Named) and is_own(part.name)
            factory = Factory.parse(str(part)) if is_own_network else getattr(part, "factory", None)
            if isinstance(factory, Factory):
                files |= sources(factory)
    return files
