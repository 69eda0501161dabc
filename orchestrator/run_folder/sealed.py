"""A JSON object as a file that carries the digest of its own bytes: what has changed since it was written is found."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

NAME = "sha256"  # the last of the object's names: of every byte before it
SEAL = re.compile(rb',\s*"sha256": "([0-9a-f]{64})"\s*\}\s*\Z')
LENGTH = 200  # bytes in which a seal ends the file


def seal(value: Mapping[str, Any], indent: int | None = None) -> bytes:
    """The object as JSON, its digest last. It needs at least one name."""
    body = json.dumps(value, indent=indent).removesuffix("}").rstrip().encode()
    apart = "\n" + " " * indent if indent else " "
    end = "\n}" if indent else "}"
    return body + f',{apart}"{NAME}": "{hashlib.sha256(body).hexdigest()}"{end}'.encode()


def unseal(data: bytes) -> Any:
    """What was sealed; ValueError, saying why, for bytes that are not as they were written.

    JSON that no digest was written with passes as it stands.
    """
    value = json.loads(data)
    if not isinstance(value, dict) or NAME not in value:
        return value
    found = SEAL.search(data, max(0, len(data) - LENGTH))
    if found is None or hashlib.sha256(memoryview(data)[: found.start()]).hexdigest().encode() != found[1]:
        raise ValueError("it is damaged: its digest is not that of its content")
    del value[NAME]
    return value
