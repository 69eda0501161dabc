"""Faults of the network: S3 requests are delayed, dropped or doubled, MLflow's server stops, a node is cut off."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import urlsplit

from tests.chaos.cluster import NODES, RayCluster
from tests.chaos.processes import outlast
from tests.chaos.rounds import Round
from tests.support.mlflow_server import MlflowServer, client, tracked
from tests.support.s3 import BUCKET, Server

Answer = tuple[int, list[tuple[str, str]], bytes]
SHARES = (0.02, 0.1, 0.3)  # of the requests
DELAYS = (0.05, 0.5, 7.0)  # seconds; the last is more than a request may take
HOP = {"connection", "transfer-encoding", "keep-alive", "content-length", "date", "server"}


class Objects:
    """The files of a store in a bucket, by their names below its prefix."""

    def __init__(self, server: Server, prefix: str) -> None:
        self._server = server
        self._prefix = prefix

    def names(self) -> list[str]:
        return sorted(name.removeprefix(f"{self._prefix}/") for name in self._server.names(f"{self._prefix}/"))

    def get(self, name: str) -> bytes:
        return self._server.get(f"{self._prefix}/{name}")

    def put(self, name: str, data: bytes) -> None:
        self._server.put(f"{self._prefix}/{name}", data)

    def delete(self, name: str) -> None:
        self._server.delete(f"{self._prefix}/{name}")


class Proxy:
    """Passes requests from loopback to a server, a share of them with a fault."""

    def __init__(self, url: str, fault: str, rng: random.Random, share: float, delay: float) -> None:
        self.fault = fault
        self.share = share
        self.delay = delay
        self.met = 0
        self._target = urlsplit(url)
        self._random = rng
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version: ClassVar[str] = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self._body()
                answer = proxy.pass_on(self.command, self.path, list(self.headers.items()), body)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, data = answer
                self.send_response_only(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one  # noqa: N815 (as its base class calls them)

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                data = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    data += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return data

            def log_message(self, *words: object) -> None:
                """Discard the log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def pass_on(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer | None:
        """The server's answer, or None if the request or its answer is dropped."""
        with self._lock:
            meets = self._random.random() < self.share
            late = self._random.random() < 0.5
            self.met += meets
        if meets and self.fault == "delay":
            time.sleep(self.delay)
        if meets and self.fault == "drop" and not late:
            return None
        answer = self._ask(method, path, headers, body)
        if meets and self.fault == "double":
            second = self._ask(method, path, headers, body)
            answer = second if late else answer
        return None if meets and self.fault == "drop" else answer

    def _ask(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        connection = http.client.HTTPConnection(self._target.hostname or "", self._target.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in ("connection", "transfer-encoding", "content-length", "expect"):
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            reply = connection.getresponse()
            data = reply.read()
        finally:
            connection.close()
        answer_headers = [(name, value) for name, value in reply.getheaders() if name.lower() not in HOP]
        if method == "HEAD":
            length = reply.getheader("Content-Length") or "0"
        else:
            length = str(len(data))
        return reply.status, [*answer_headers, ("Content-Length", length)], data


def use_bucket(campaign_round: Round, server: Server, url: str) -> None:
    """Place the round's store in the bucket, which its commands reach by this URL."""
    prefix = campaign_round.folder.name
    campaign_round.store = f"s3://{BUCKET}/{prefix}"
    campaign_round.files = Objects(server, prefix)
    campaign_round.environment |= {
        **server.env,
        "AWS_ENDPOINT_URL": url,
        "ENGRAM_RUNS": str(campaign_round.folder / "copies"),
    }


def disturb_requests(fault: str) -> Callable[[Round, Server], str]:
    """The fault that affects a share of a run's requests. The run may end or be killed; the next one is undisturbed."""

    def disturb(campaign_round: Round, server: Server) -> str:
        share = campaign_round.rng.choice(SHARES)
        delay = campaign_round.rng.choice(DELAYS)
        proxy = Proxy(server.url, fault, campaign_round.rng, min(share, 0.1) if delay > 1 else share, delay)
        campaign_round.undo.append(proxy.close)
        use_bucket(campaign_round, server, proxy.url)
        driver = campaign_round.start()
        killed = campaign_round.rng.random() < 0.3
        if killed:
            campaign_round.await_share(driver)
            driver.kill()
            driver.wait()
        code = driver.poll() if killed else campaign_round.end(driver).returncode
        campaign_round.environment["AWS_ENDPOINT_URL"] = server.url
        campaign_round.environment["ENGRAM_RUNS"] = str(
            campaign_round.folder / campaign_round.rng.choice(("copies", "another"))
        )
        how = f" of {delay:g} s" if fault == "delay" else ""
        return f"{proxy.met} requests{how} ({proxy.share:g} of all), ended with {code}"

    return disturb


def stop_tracking(campaign_round: Round, server: MlflowServer) -> str:
    """MLflow's server stops during a run and returns after it: the run must be tracked once and completely."""
    experiment = campaign_round.folder.name
    campaign_round.options += ["--mlflow", server.url]
    campaign_round.environment["MLFLOW_EXPERIMENT_NAME"] = experiment
    driver = campaign_round.start()
    stored_count = campaign_round.await_share(driver)
    server.kill()
    driver_result = campaign_round.end(driver)
    server.start()
    campaign_round.checks.append(lambda: tracking_problems(server, experiment))
    return f"{stored_count} stored, the run ended with {driver_result.returncode}"


def tracking_problems(server: MlflowServer, experiment: str) -> Iterator[str]:
    runs = tracked(client(server.url), experiment)
    if [run.info.status for run in runs] != ["FINISHED"]:
        yield f"MLflow has the runs {[run.info.status for run in runs]}"
    elif not runs[0].data.metrics:
        yield "MLflow has no number of the run"


def cut_off(campaign_round: Round, cluster: RayCluster) -> str:
    """A node that is cut off continues to compute alone. It is connected again during the run or after it."""
    driver = campaign_round.start()
    stored_count = campaign_round.await_share(driver, 0.9)
    cluster.cut(name := campaign_round.rng.choice(list(NODES)))
    early = campaign_round.rng.random() < 0.5
    if early:
        time.sleep(campaign_round.rng.uniform(0.5, 4.0))
        cluster.plug(name)
    outlast(campaign_round, driver, cluster)
    cluster.join(name)
    return f"{stored_count} stored, {name}" + (", in again at once" if early else "")
