"""A prefix in an object store, `s3://bucket/prefix` or `az://container/prefix`, and the few operations on it.

Reading or writing an object takes one request, and an object is durable once its put returns. Conditional puts ensure
that exactly one of several writers wins. No call hangs for longer than about 20 seconds plus the transfer time of a
large object.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError, PreconditionError

from orchestrator.errors import StoreError, Unwritable
from orchestrator.store.clouds import CREDENTIALS, ENDPOINTS, Place

REQUEST_SECONDS = 5.0  # per request; a silent server is given up after 16 s
SLOWEST = 2**20  # bytes per second: the slowest rate that the time limit of a large object allows
PATIENCE = 8.0  # seconds for which a write is retried after network errors
PAGE = 1000  # objects per listing page
LOCATION = re.compile(r"((?i:s3|az))://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[^/?#]+)*)/*")
# Maps text in the first line of an obstore error to the message for the user.
CAUSES = {
    "NoSuchBucket": "there is no such bucket",
    "ContainerNotFound": "there is no such container",
    "http://169.254.": "there are no credentials; {credentials}",  # the request for the machine's role failed
    "ExpiredToken|TokenRefreshRequired": "the credentials have expired; {credentials}",
    "PermanentRedirect|AuthorizationHeaderMalformed|configured region|301 Moved": "it is in another region; set "
    "AWS_REGION",
    "403 Forbidden|401 Unauthorized|InvalidAccessKeyId|SignatureDoesNotMatch": "access is denied; {credentials}",
    "SlowDown|503 Service|429 Too": "it is too busy",
    "HTTP error": "it cannot be reached; check the network, and {endpoint} if set",
}
PASSING = re.compile(r"HTTP error|status code: (?:50\d|429)|SlowDown|OperationAborted|ConditionalRequestConflict")
INVALID_NAME = re.compile(r'Path "(.*?)"(?: contained|: )', re.DOTALL)  # in obstore errors
FIRST_NAMES = re.compile(r"/(?:/|\.\.?(?:/|$))")  # `a//b` and `a/../b` sort before all names that a store uses
UNCONDITIONAL = (
    "its server ignores If-None-Match or If-Match and overwrites existing objects, so two drivers could have the same "
    "run; use a server with conditional puts"
)


class Away(StoreError):
    """The object store is temporarily unreachable or too busy."""


@dataclass(frozen=True)
class Object:
    """An existing object: its name below the prefix, size in bytes, write time and version."""

    name: str
    size: int
    write_time: datetime
    tag: str


class Bucket:
    """The objects below one prefix. Names are relative to it.

    Reading raises FileNotFoundError for a missing object and StoreError for any other failure. Writing raises
    Unwritable.
    """

    def __init__(self, location: str) -> None:
        match = LOCATION.fullmatch(location)
        if match is None:
            raise StoreError(
                f"{location!r} is not a location in an object store; give s3://bucket/prefix or az://container/prefix"
            )
        self._place = Place(match[1].lower(), match[2])
        self._prefix = match[3].strip("/")
        self.location = f"{self._place.scheme}://{self._place.bucket}{match[3]}"
        self._has_conditional_puts = False  # whether the server honours conditions
        with self.reading(""):
            self._client = self._place.client(REQUEST_SECONDS)

    def get(self, name: str) -> pa.Buffer:
        """Return all bytes of an object."""
        return self.fetch(name)[0]

    def fetch(self, name: str) -> tuple[pa.Buffer, Object]:
        """Fetch all bytes of an object and its description in one request."""
        with self.reading(name):
            response = obstore.get(self._client, self._path(name))
            return pa.py_buffer(response.bytes()), self._object(response.meta)

    def end(self, name: str, size: int) -> pa.Buffer:
        """Return the last bytes of an object, at most `size`, in one request."""
        with self.reading(name):
            last: Any = {"suffix": size}
            if self._place.scheme == "az":  # Azure has no suffix ranges, so a second request is needed
                last = {"offset": max(0, obstore.head(self._client, self._path(name))["size"] - size)}
            response = obstore.get(self._client, self._path(name), options={"range": last})
            return pa.py_buffer(response.bytes())

    def holds(self, name: str) -> bool:
        """Whether an object of this name exists. Takes one request."""
        with suppress(FileNotFoundError), self.reading(name):
            obstore.head(self._client, self._path(name))
            return True
        return False

    def put(self, name: str, *parts: bytes | memoryview) -> str:
        """Put an object, replacing an existing one. Returns its version."""
        return self._put(name, parts, "overwrite")

    def create(self, name: str, *parts: bytes | memoryview) -> str | None:
        """Put an object unless the name is taken. Returns the object's version, or None if the name is taken.

        The existing object may be our own: if a response is lost, the put is repeated.
        """
        with suppress(AlreadyExistsError):
            return self._put(name, parts, "create")
        return None

    def replace(self, name: str, data: bytes, tag: str) -> str | None:
        """Replace an object if it still has this version.

        Returns the new version, or None if it has changed or is missing.
        """
        with suppress(PreconditionError, AlreadyExistsError, FileNotFoundError):
            return self._put(name, (data,), {"e_tag": tag})
        return None

    def prove_conditions(self, name: str, data: bytes) -> None:
        """Raise StoreError if the server ignores conditions and overwrites an existing object. Tested once."""
        if not self._has_conditional_puts:
            if self.create(name, data) is not None or self.replace(name, data, '"of another version"') is not None:
                raise StoreError(f"cannot use {self.location}: {UNCONDITIONAL}")
            self._has_conditional_puts = True

    def delete(self, *names: str) -> None:
        """Delete objects if they exist, with up to a thousand per request."""
        if not names:
            return
        try:
            obstore.delete(self._client, [self._path(name) for name in names])
        except FileNotFoundError:  # on Azure, one object is missing but the others may still exist
            for name in names if len(names) > 1 else ():
                self.delete(name)
        except BaseError as error:
            raise Unwritable(f"cannot delete {self.location}/{names[0]}: {self._cause(error)}") from None

    def objects(self, below: str) -> list[Object]:
        """Return all objects below a folder, recursively. Returns an empty list if the folder does not exist.

        Objects whose names are not paths are omitted, since Engram writes none.
        """
        return self._list(below)[0]

    def invalid_names(self, below: str) -> list[str]:
        """Return the names below a folder that are not paths, such as `a/../b`."""
        return self._list(below)[1]

    def _list(self, below: str) -> tuple[list[Object], list[str]]:
        """Return the objects below a folder, and the names there that are not paths.

        A single such name makes the client reject the whole listing page. In that case each folder is listed
        separately, and a folder that contains such a name is listed from after that name.
        """
        with self.reading(below):
            try:
                return self._pages(self._path(below)), []
            except InvalidPathError:
                return self._list_by_folder(self._path(below))

    def _pages(self, prefix: str, start_after: str | None = None) -> list[Object]:
        pages = obstore.list(self._client, prefix or None, chunk_size=PAGE, offset=start_after)
        return [self._object(metadata) for page in pages for metadata in page]

    def _list_by_folder(self, prefix: str) -> tuple[list[Object], list[str]]:
        try:
            listing = obstore.list_with_delimiter(self._client, prefix or None)
        except ValueError:  # the prefix itself is not a path
            return [], [self._relative(prefix)]
        except InvalidPathError as error:
            return self._list_after(prefix, error)
        objects = [self._object(entry) for entry in listing["objects"]]
        invalid: list[str] = []
        for folder in listing["common_prefixes"]:
            folder_objects, folder_names = self._list_by_folder(folder)
            objects += folder_objects
            invalid += folder_names
        return objects, invalid

    def _list_after(self, prefix: str, error: Exception) -> tuple[list[Object], list[str]]:
        """List the objects that sort after the names that are not paths. `error` refers to the first of these names.

        Raises that error again if other names may sort before it, since this listing would omit them.
        """
        invalid: list[str] = []
        while True:
            match = INVALID_NAME.search(str(error))
            if match is None or match[1] in invalid or not FIRST_NAMES.match(match[1], len(prefix)):
                raise error
            invalid.append(match[1])
            try:
                return self._pages(prefix, _path_after(match[1])), [self._relative(name) for name in invalid]
            except InvalidPathError as another:
                error = another

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self._prefix}/" if self._prefix else "")

    def names(self) -> list[str]:
        """Return the top-level objects and folders. Raises StoreError if the bucket does not exist."""
        with self.reading(""):
            listing = obstore.list_with_delimiter(self._client, self._prefix or None)
            paths = [*listing["common_prefixes"], *(entry["path"] for entry in listing["objects"])]
            return [path.rpartition("/")[2] for path in paths]

    def _put(self, name: str, parts: tuple[bytes | memoryview, ...], mode: Any) -> str:
        data = b"".join(parts)
        small = len(data) <= SLOWEST * REQUEST_SECONDS
        if small:
            client = self._client
        else:
            client = self._place.client(_seconds(len(data)))
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return _tag(obstore.put(client, self._path(name), data, mode=mode, use_multipart=False))
            except (AlreadyExistsError, PreconditionError):
                raise
            except (BaseError, FileNotFoundError) as error:
                if time.monotonic() > end or not _passing(error):
                    raise Unwritable(f"cannot write {self.location}/{name}: {self._cause(error)}") from None
                time.sleep(1.0)

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self._prefix, name) if part)

    def _object(self, meta: Any) -> Object:
        return Object(self._relative(meta["path"]), meta["size"], meta["last_modified"], _tag(meta))

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Raise StoreError if an object cannot be read, and FileNotFoundError if it does not exist."""
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise StoreError(f"cannot use {self.location}: {self._cause(error)}") from None
            if isinstance(error, FileNotFoundError):
                raise
            if name:
                path = f"{self.location}/{name}"
            else:
                path = self.location
            kind = Away if _passing(error) else StoreError
            raise kind(f"cannot read {path}: {self._cause(error)}") from None

    def _cause(self, error: Exception) -> str:
        return cause(error, self._place.scheme)


def _path_after(name: str) -> str:
    """Return a path that sorts after this name in a listing, with only the name's own subfolders in between."""
    if name.endswith("/"):
        return f"{name[:-1]}0"
    return f"{name} "


def _seconds(size: int) -> float:
    """Return the time limit in seconds for this number of bytes, rounded up to a power of two."""
    return float(2 ** math.ceil(math.log2(size / SLOWEST)))


def _tag(meta: Any) -> str:
    """Return an object's version in quotes, as conditions require. Azure's listings omit the quotes."""
    tag = str(meta["e_tag"])
    return tag if '"' in tag else f'"{tag}"'


def _passing(error: Exception) -> bool:
    return PASSING.search(_head(error)) is not None and "http://169.254." not in _head(error)


def cause(error: Exception, scheme: str) -> str:
    """Describe the cause of an object store error in a few words, with a remedy."""
    head = _head(error)
    for words, message in CAUSES.items():
        if any(word in head for word in words.split("|")):
            return message.format(credentials=CREDENTIALS[scheme], endpoint=ENDPOINTS[scheme])
    match = re.search(r"<Message>(.*?)</Message>", head) or re.search(r"status code: (\d.*?)(?::|$)", head)
    return match[1] if match else head


def _head(error: Exception) -> str:
    """Return an obstore error message as one line, without its debug source."""
    return " ".join(str(error).partition("\n\nDebug source")[0].split())
