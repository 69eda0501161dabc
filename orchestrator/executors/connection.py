"""Connects to a Ray cluster: checks that one answers at an address, or starts a private one on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import ray

from orchestrator.errors import ClusterError
from orchestrator.executors import private_ray
from orchestrator.executors.cluster import reason
from orchestrator.executors.environment import ONE_THREAD, handler_kept, no_stderr, variables
from orchestrator.executors.session_folder import session_variables
from orchestrator.spec.specification import host_and_port
from tasks.worker.process_guard import Guard

OBJECT_STORE_BYTES = 100 * 2**20  # only outcomes are transferred
STARTS = 3  # attempts to start a private cluster
SLOW_START = "timed out during startup"  # from the message in Ray's node.py
# By default, Ray ends this process when the head has been unreachable for a minute, before the run is closed.
RAY_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_gcs_rpc_server_reconnect_timeout_s": "600"}
PROBE_SECONDS = 3.0
# HTTP/2, as used by gRPC: the client preface with an empty SETTINGS frame, which a server answers at once.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS = 4
ADDRESS_HINT = (
    "check that it runs (`ray status` there), that the port is its GCS port (6379 by default) and open to this host"
)


def reachable(host: str, port: int, seconds: float = PROBE_SECONDS) -> bool:
    """Whether this address accepts a connection."""
    try:
        socket.create_connection((host, port), timeout=seconds).close()
    except OSError:
        return False
    return True


def probe(address: str) -> None:
    """Raise ClusterError unless a gRPC server answers at the address within PROBE_SECONDS."""
    host, port = host_and_port(address)
    troubles = [f"no Ray cluster at {address}: no answer in {PROBE_SECONDS:g} s; {ADDRESS_HINT}"]

    def ask() -> None:
        troubles.append(_trouble(address, host, port, time.monotonic() + PROBE_SECONDS))

    # In a thread, because a name lookup has no time limit.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    if troubles[-1]:
        raise ClusterError(troubles[-1])


def _trouble(address: str, host: str, port: int, end: float) -> str:
    """Describe the problem at an address in one line. Returns an empty string if there is none."""
    try:
        connection = socket.create_connection((host, port), timeout=PROBE_SECONDS)
    except OSError as error:
        return f"no Ray cluster at {address}: {(error.strerror or str(error)).lower()}; {ADDRESS_HINT}"
    encrypts = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
    try:
        with _encrypt(connection, host, end) if encrypts else connection as channel:
            if _speaks_grpc(channel, end - 0.1):
                return ""
    except (OSError, KeyError) as error:  # includes ssl.SSLError
        problem = f"{error} is not set" if isinstance(error, KeyError) else getattr(error, "reason", None) or error
        return (
            f"no TLS with {address}: {problem}; check that the files of RAY_TLS_* match its authority and its address"
        )
    if encrypts:
        return f"the server at {address} is not Ray, or refuses the certificate of RAY_TLS_SERVER_CERT"
    return f"the server at {address} is not Ray, or requires TLS; check that the port is its GCS port (6379 by default)"


def _encrypt(connection: socket.socket, host: str, end: float) -> ssl.SSLSocket:
    """Wrap the connection in TLS in the same way as Ray's own processes. Raises OSError."""
    context = ssl.create_default_context(cafile=os.environ["RAY_TLS_CA_CERT"])
    context.load_cert_chain(os.environ["RAY_TLS_SERVER_CERT"], os.environ["RAY_TLS_SERVER_KEY"])
    context.set_alpn_protocols(["h2"])
    connection.settimeout(max(0.1, end - 0.1 - time.monotonic()))
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except OSError:
        connection.close()
        raise


def _speaks_grpc(connection: socket.socket, end: float) -> bool:
    """Whether the other side answers like an HTTP/2 server before `end` (monotonic seconds)."""
    answer = b""
    try:
        connection.sendall(PREFACE)
        while len(answer) < 9 and (seconds_left := end - time.monotonic()) > 0:
            connection.settimeout(seconds_left)
            received = connection.recv(64)
            if not received:
                return False
            answer += received
    except OSError:
        return False
    return len(answer) >= 9 and answer[3] == SETTINGS


@contextlib.contextmanager
def connect(
    address: str, cpus: int | None = None, dashboard: bool = False
) -> Iterator[tuple[str, tuple[str, int] | None, Guard | None]]:
    """Connect to a cluster. Yields its address, the address of its head (None for ray://), and its guard.

    Only a private cluster, started by "local", has a guard. It runs Ray's dashboard if `dashboard` is set.
    """
    if ray.is_initialized():
        head = ray.get_runtime_context().gcs_address
        yield head, host_and_port(head), None
        return
    guard: Guard | None = None
    with contextlib.ExitStack() as stack:
        if address == "local":
            short = session_variables()
            guard = Guard()
            stack.callback(guard.close)
            token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
            _set(stack, {**RAY_SETTINGS, **ONE_THREAD, **token, **short, "RAY_worker_niceness": "0"})
            stack.enter_context(_loopback())
            with _variables(guard.variables):  # for Ray's processes, but not for later ones
                options = {"include_dashboard": dashboard, "object_store_memory": OBJECT_STORE_BYTES}
                _init(stack, address, num_cpus=cpus, **options)
        else:
            if address == "auto":
                address = _auto_address()
            probe(address)
            _set(stack, RAY_SETTINGS)
            _init(stack, address)
        if address.startswith("ray://"):
            yield address, None, None
        else:
            head = ray.get_runtime_context().gcs_address
            yield head if address == "local" else address, host_and_port(head), guard


def _init(stack: contextlib.ExitStack, address: str, **options: Any) -> None:
    """Call `ray.init` silently and without installing its signal handler. Raises ClusterError on any failure.

    A SIGTERM during the call would reach Ray's own handler, which exits with the signal number. Here it counts as
    Ctrl-C.
    """
    stack.callback(_shut_down)
    private_ray.silence_workers()
    with handler_kept(signal.SIGTERM):
        try:
            if address != "local" and not address.startswith("ray://"):
                with no_stderr():
                    private_ray.connect_to_head(address)
            _start(address, log_to_driver=False, logging_level=logging.CRITICAL, **options)
        except SystemExit:
            raise KeyboardInterrupt from None
        except Exception as error:
            raise ClusterError(_refusal(address, error)) from error


def _start(address: str, **options: Any) -> None:
    """Call `ray.init`, and retry if the private cluster was slow to start.

    Ray waits only 30 s for it, even on a busy machine.
    """
    for attempt in range(1, STARTS + 1):
        try:
            ray.init(address, **options)
        except Exception as error:
            was_slow = address == "local" and SLOW_START in str(error)
            if not was_slow or attempt == STARTS:
                raise
            _shut_down()
        else:
            return


def _shut_down() -> None:
    """Disconnect from Ray and end a private cluster. The SIGTERM handler stays in effect during and after this.

    Ray's C++ code resets SIGTERM to the system default, which ends the process. Only the main thread may set a handler,
    so another thread waits for Ray.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or handler is None:
        ray.shutdown()
        return
    ending = threading.Thread(target=ray.shutdown, daemon=True)
    ending.start()
    try:
        while ending.is_alive():
            ending.join(0.01)
            signal.signal(signal.SIGTERM, handler)
    finally:
        ending.join()


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Make a cluster started inside the block, and all its processes, listen on the loopback interface only.

    On macOS and Windows, Ray does this itself through the same variable. Otherwise it would replace a node address of
    127.0.0.1 with the network address.
    """
    with private_ray.listen_on_loopback() as values, _variables(values):
        yield


def _refusal(address: str, error: Exception) -> str:
    if "token" in str(error).lower():
        return (
            f"the Ray cluster at {address} refuses the token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN "
            "(or RAY_AUTH_TOKEN_PATH) to the cluster's values"
        )
    if address == "local":
        action = "start on this machine"
    else:
        action = f"be used at {address}"
    return f"Ray cannot {action}: {reason(error)[0]}"


def _auto_address() -> str:
    """Return the address for `auto`: RAY_ADDRESS, or a cluster running on this machine."""
    address = os.environ.get("RAY_ADDRESS", "")
    if address not in ("", "auto", "local"):
        return address
    try:
        return private_ray.local_address()
    except ConnectionError as error:
        raise ClusterError(
            "no Ray cluster runs on this machine; start one with `ray start --head`, or use address local"
        ) from error


def _variables(values: Mapping[str, str]) -> contextlib.AbstractContextManager[None]:
    """Set environment variables inside the block. Also restores PYTHONBREAKPOINT, which Ray sets."""
    return variables(values, "PYTHONBREAKPOINT")


def _set(stack: contextlib.ExitStack, values: Mapping[str, str]) -> None:
    """Set variables until the stack closes. Ray caches the first token it reads, so the cache is reset."""
    stack.callback(private_ray.read_token)
    stack.enter_context(_variables(values))
    private_ray.read_token()
