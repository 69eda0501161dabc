"""A JSON object as a file that contains the digest of its own bytes, so that any change is detected."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

NAME = "sha256"  # the object's last name: the digest of every byte before it
SEAL = re.compile(rb',\s*"sha256": "([0-9a-f]{64})"\s*\}\s*\Z')
LENGTH = 200  # bytes at the end of the file that contain the seal


def seal(value: Mapping[str, Any], indent: int | None = None) -> bytes:
    """The object as JSON, with its digest last. It must have at least one name."""
    body = json.dumps(value, indent=indent).removesuffix("}").rstrip().encode()
    apart = "\n" + " " * indent if indent else " "
    end = "\n}" if indent else "}"
    return body + f',{apart}"{NAME}": "{hashlib.sha256(body).hexdigest()}"{end}'.encode()


def unseal(data: bytes) -> Any:
    """The sealed object. Raises ValueError, with the reason, for bytes that are not as they were written.

    JSON without a digest is returned unchecked.
    """
    value = json.loads(data)
    if not isinstance(value, dict) or NAME not in value:
        return value
    match = SEAL.search(data, max(0, len(data) - LENGTH))
    if match is None or hashlib.sha256(memoryview(data)[: match.start()]).hexdigest().encode() != match[1]:
        raise ValueError("it is damaged: its digest is not that of its content")
    del value[NAME]
    return value
