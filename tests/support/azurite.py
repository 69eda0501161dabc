"""Azurite, Microsoft's server of Azure blobs, on this machine.

The command is searched on PATH or given by AZURITE. `npm install azurite` creates `node_modules/.bin/azurite-blob`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import obstore
import pytest
from obstore.store import AzureStore

from tests.support.ports import free_port
from tests.support.waiting import HANGING

CONTAINER = "results"
ACCOUNT = "tester"
KEY = base64.b64encode(b"known to these tests alone").decode()
VERSION = "2021-08-06"  # of Azure's protocol


class Azurite:
    """A server at the AZURE_STORAGE_ENDPOINT of `env`, with one empty container."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/{ACCOUNT}"
        self.env = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.url,
        }
        self.client = AzureStore(
            CONTAINER,
            config={"account_name": ACCOUNT, "account_key": KEY, "endpoint": self.url},
            client_options={"allow_http": True},
        )

    def make_container(self) -> None:
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        signed = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{VERSION}"]
        signed += [f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}", "restype:container"]
        digest = hmac.new(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        }
        urlopen(Request(f"{self.url}/{CONTAINER}?restype=container", method="PUT", headers=headers)).close()

    def empty(self) -> None:
        for name in self.names():
            self.delete(name)

    def names(self, prefix: str = "") -> list[str]:
        result = []
        for page in obstore.list(self.client, prefix or None):
            for listed_object in page:
                result.append(listed_object["path"])
        return result

    def get(self, name: str) -> bytes:
        return bytes(obstore.get(self.client, name).bytes())

    def put(self, name: str, data: bytes) -> None:
        obstore.put(self.client, name, data, use_multipart=False)

    def delete(self, name: str) -> None:
        obstore.delete(self.client, name)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Azurite]:
    """Start a server with its data in a folder. Skips the test if Azurite is not installed."""
    command = os.environ.get("AZURITE") or shutil.which("azurite-blob")
    if command is None:
        pytest.skip("there is no azurite-blob on PATH, and AZURITE names none")
    port = free_port()
    options = ["--location", str(folder), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with subprocess.Popen(
        [command, *options, "--skipApiVersionCheck", "--disableTelemetry", "--silent"],
        env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        start_new_session=True,
    ) as process:
        try:
            server = Azurite(port)
            end = time.monotonic() + HANGING
            while True:
                try:
                    server.make_container()
                    break
                except URLError:  # it does not answer yet
                    if time.monotonic() > end or process.poll() is not None:
                        raise
                    time.sleep(0.1)
            yield server
        finally:
            os.killpg(process.pid, signal.SIGTERM)
