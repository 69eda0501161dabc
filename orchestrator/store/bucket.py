"""A prefix in an object store, `s3://bucket/prefix`, and the few operations on it.

Amazon's S3, or another service by AWS_ENDPOINT_URL. Credentials and region come from the usual environment, files or
machine's role, never from the location. Each object is put by one request, which is durable and whole when it
returns. No call hangs for longer than about 20 seconds.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyarrow import fs

from orchestrator.errors import StoreError, Unwritable

CONNECT_SECONDS, REQUEST_SECONDS, ATTEMPTS = 5.0, 5.0, 3  # of each request: a silent server is given up after 16 s
PATIENCE = 8.0  # seconds for which a write is retried after network errors
LOCATION = re.compile(r"(?i:s3)://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[^/?#]+)*)/*")
CREDENTIALS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the machine's role"
# S3's error codes (or only the status, if a reply has no text), and the message for the user.
CAUSES = {
    "NO_SUCH_BUCKET": "there is no such bucket",
    "NETWORK_CONNECTION": "it cannot be reached; check the network, and AWS_ENDPOINT_URL where it is set",
    "ACCESS_DENIED|InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch"
    "|INVALID_CLIENT_TOKEN_ID|HTTP status 403": f"access is denied; {CREDENTIALS}",
    "ExpiredToken|EXPIRED_TOKEN": f"the credentials have expired; {CREDENTIALS}",
    "PermanentRedirect|AuthorizationHeaderMalformed|HTTP status 301": "it lies in another region; set AWS_REGION",
    "SLOW_DOWN|THROTTLING|SERVICE_UNAVAILABLE|HTTP status 503": "it is too busy",
}
PASSING = ("NETWORK_CONNECTION", "SLOW_DOWN", "THROTTLING", "UNAVAILABLE", "INTERNAL_FAILURE", "HTTP status 50")


class Away(StoreError):
    """The object store cannot be reached for now, or is too busy."""


@dataclass(frozen=True)
class Object:
    """An existing object: its name below the prefix, its size in bytes, and when it was written, by the store."""

    name: str
    size: int
    written: datetime


class Bucket:
    """The objects below one prefix. Names are relative to it.

    Reading raises FileNotFoundError for a missing object and StoreError for any other failure; writing raises
    Unwritable.
    """

    def __init__(self, location: str) -> None:
        match = LOCATION.fullmatch(location)
        if match is None:
            raise StoreError(f"{location!r} is no place in an object store; give s3://bucket/prefix")
        self._root = match[1] + match[2]
        self.location = f"s3://{self._root}"
        with self.reading(""):
            self._files = fs.S3FileSystem(
                region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
                endpoint_override=os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"),
                connect_timeout=CONNECT_SECONDS,
                request_timeout=REQUEST_SECONDS,
                retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
                allow_delayed_open=True,  # small objects are put by one request
            )

    def get(self, name: str) -> pa.Buffer:
        """All bytes of an object."""
        with self.open(name) as file, self.reading(name):
            return file.read_buffer()

    def open(self, name: str) -> pa.NativeFile:
        """An object opened for reading by ranges."""
        with self.reading(name):
            return self._files.open_input_file(self._path(name))

    def holds(self, name: str) -> bool:
        """Whether there is an object of this name, by one request."""
        try:
            self.open(name).close()
        except FileNotFoundError:
            return False
        return True

    def put(self, name: str, *parts: bytes | memoryview) -> None:
        """Put an object, replacing an existing one."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with self._files.open_output_stream(self._path(name)) as file:
                    for part in parts:
                        file.write(part)
                return
            except OSError as error:
                if time.monotonic() > end or not passing(error):
                    raise Unwritable(f"cannot write {self.location}/{name}: {cause(error)}") from None
                time.sleep(1.0)

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        try:
            self._files.delete_file(self._path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unwritable(f"cannot delete {self.location}/{name}: {cause(error)}") from None

    def objects(self, below: str) -> list[Object]:
        """All objects below a folder, recursively; empty if there is no such folder, or no such bucket."""
        start = len(self._root) + 1
        with self.reading(below):
            infos = self._files.get_file_info(fs.FileSelector(self._path(below), allow_not_found=True, recursive=True))
        return [Object(info.path[start:], info.size, info.mtime) for info in infos if info.type == fs.FileType.File]

    def names(self) -> list[str]:
        """The objects and folders at the top level. Raises StoreError if there is no such bucket."""
        with self.reading(""):
            if "/" not in self._root:
                return [info.base_name for info in self._files.get_file_info(fs.FileSelector(self._root))]
            infos = self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
            if not infos:  # perhaps there is no bucket; listing a whole one could take long, so ask for its info
                self._exists(self._root.partition("/")[0])
            return [info.base_name for info in infos]

    def _exists(self, bucket: str) -> None:
        if self._files.get_file_info(bucket).type == fs.FileType.NotFound:
            raise StoreError(f"cannot use {self.location}: {CAUSES['NO_SUCH_BUCKET']}")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Raise StoreError, in one line, if an object cannot be read; FileNotFoundError if it does not exist."""
        try:
            yield
        except FileNotFoundError:
            if not name:
                raise StoreError(f"cannot use {self.location}: {CAUSES['NO_SUCH_BUCKET']}") from None
            raise
        except OSError as error:
            place = f"{self.location}/{name}" if name else self.location
            kind = Away if passing(error) else StoreError
            raise kind(f"cannot read {place}: {cause(error)}") from None


def passing(error: Exception) -> bool:
    """Whether an error is likely to be temporary."""
    return any(word in str(error) for word in PASSING)


def cause(error: Exception) -> str:
    """The cause of an object store's error in a few words, with a remedy."""
    text = str(error)
    for words, message in CAUSES.items():
        if any(word in text for word in words.split("|")):
            return message
    match = re.search(r"AWS Error (.*)", " ".join(text.split()))
    return match[1] if match else " ".join(text.split())
