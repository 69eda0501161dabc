"""An S3 server on this machine, which a test can damage, close and start again."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

from tests.support.ports import free_port

BUCKET = "results"
REQUEST = re.compile(r"(GET|HEAD|PUT|POST|DELETE) (\S+)")
KEYS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Server:
    """A server at the AWS_ENDPOINT_URL of `env`, with one empty bucket."""

    def __init__(self) -> None:
        import boto3  # here, so that tests of other things do without

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server: Any = None
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.env = {**KEYS, "AWS_ENDPOINT_URL": self.url}
        self.start()
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=KEYS["AWS_REGION"],
            aws_access_key_id="tester",
            aws_secret_access_key="secret",
        )
        self.client.create_bucket(Bucket=BUCKET)

    def start(self) -> None:
        """Answer again, with the bucket's earlier content."""
        from moto.server import ThreadedMotoServer

        _put_one_at_a_time()
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def empty(self) -> None:
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for listed_object in page.get("Contents", ()):
                self.delete(listed_object["Key"])

    def names(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        result = []
        for page in pages:
            for listed_object in page.get("Contents", ()):
                if not listed_object["Key"].endswith("/"):
                    result.append(listed_object["Key"])
        return result

    def get(self, name: str) -> bytes:
        data: bytes = self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return data

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=name, Body=data)

    def flip(self, name: str, bit: int) -> None:
        data = bytearray(self.get(name))
        data[bit // 8] ^= 1 << bit % 8
        self.put(name, bytes(data))

    def delete(self, name: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=name)

    @contextlib.contextmanager
    def forbidding(self) -> Iterator[None]:
        """Deny all access during the context."""
        self._authenticate_after(0)
        try:
            yield
        finally:
            self._authenticate_after(10**9)

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count the requests during the context, by method and separately for listings: `GET`, `LIST`, `PUT`, ..."""
        counts: Counter[str] = Counter()

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                method, path = REQUEST.search(record.getMessage()).groups()  # type: ignore[union-attr]
                counts["LIST" if "list-type" in path else method] += 1

        logger = logging.getLogger("werkzeug")
        handler = Handler()
        level = logger.level
        propagate = logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield counts
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate

    def _authenticate_after(self, requests: int) -> None:
        # A body of any other type would be parsed as a form and lost.
        reset_request = Request(
            f"{self.url}/moto-api/reset-auth", str(requests).encode(), {"Content-Type": "text/plain"}
        )
        urlopen(reset_request).close()


@contextlib.contextmanager
def served() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def deaf(server: Server, header: str) -> Iterator[str]:
    """The address of a proxy that passes requests to a server without one of their headers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() != header.lower()}
            connection = HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]))
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            connection.close()

        do_GET = do_HEAD = do_POST = do_DELETE = do_PUT  # noqa: N815

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


@functools.cache
def _put_one_at_a_time() -> None:
    """Make moto check the condition of a put and write in one step, as S3 does. Otherwise threads can interleave."""
    from moto.s3.responses import S3Response

    put = S3Response._key_response_put
    lock = threading.Lock()

    def put_alone(*args: Any, **options: Any) -> Any:
        with lock:
            return put(*args, **options)

    S3Response._key_response_put = put_alone
