"""Commitment to a draw: a SHA-256 digest of the audit's whole configuration and the secret.

A nonce chosen by the other party prevents the first party from choosing the secret. It does not prevent the first party
from choosing a comparison after the other party's answers arrive: a provider who picks one of 48 calibration sets for
each owner accuses 32 of 100 innocent owners. The commitment therefore covers the canonical form of the whole
configuration, as in a job key. It excludes the fields marked OUTSIDE_COMMITMENT: the nonce, the secret and the other
party's files.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from orchestrator.planning.identity import canonical
from orchestrator.spec import audits
from orchestrator.spec.config_parts import parts
from tasks.contract.commitment import OUTSIDE_COMMITMENT, Binding
from tasks.external.bound_draw import Draw

SCHEME = "engram analysis 2"  # changes with the format of the committed configuration


def draw_of(audit: str, config: Any) -> Draw | None:
    """Return the inputs to this configuration's draw, or None if the audit has no draw between two parties."""
    registered = audits.find_installed(audit)
    if registered is None:
        handout = None
    else:
        handout = registered.audit.handout
    if handout is None or handout.draw is None:
        return None
    draw: Draw | None = handout.draw(config)
    return draw


def committed_configuration(draw: Draw) -> dict[str, Any]:
    """Return the committed form of the configuration as numbers, text, lists and dicts.

    Data sets are represented by their digests. Raises SpecError if a digest is not known yet.
    """
    form: dict[str, Any] = copy.deepcopy(canonical(draw.config))  # copied because all keys share its parts
    for path in (*_outside_paths(draw.config), *(name.split(".") for name in draw.unused)):
        _remove(form, path)
    return form


def commitment_of(draw: Draw) -> str:
    """Return the SHA-256 of the committed configuration and the secret, as 64 hexadecimal digits.

    The hashed text is compact JSON with sorted keys: a list of SCHEME, the configuration and the secret.
    """
    text = json.dumps([SCHEME, committed_configuration(draw), draw.secret], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def binding_of(draw: Draw | None) -> Binding:
    """Return the scope of the stated commitment.

    Returns an empty string without a nonce or commitment, `draw` for a commitment by an earlier version, which covers
    only the draw, and otherwise `analysis`.
    """
    if draw is None or not draw.nonce or not draw.stated:
        return ""
    if draw.stated == commitment_of(draw):
        return "analysis"
    return "draw"


def check_commitment(draw: Draw) -> None:
    """Raise ValueError if a commitment is stated, or required by a nonce, and does not match this configuration.

    A commitment by an earlier version, which covers only the pool of the draw, is accepted, and the answer says so.
    """
    if not draw.nonce and not draw.stated:
        return
    expected = commitment_of(draw)
    if draw.stated and draw.stated in (expected, draw.pool_commitment):
        return
    raise ValueError(
        f"commitment is {draw.stated or 'empty'}; with a nonce it must be that of these settings, {expected}. No "
        "setting may change after the commitment; compare the settings with the output of engram probes --commit"
    )


def _outside_paths(config: Any) -> Iterator[list[str]]:
    """Yield the paths of the fields excluded from the commitment."""
    for field in dataclasses.fields(config):
        if field.metadata.get(OUTSIDE_COMMITMENT):
            yield [field.name]
            continue
        value = getattr(config, field.name)
        if parts(value) is not None:
            for path in _outside_paths(value):
                yield [field.name, *path]


def _remove(form: dict[str, Any], path: list[str]) -> None:
    """Remove the entry at this path, if it exists. A part without a value has no entries."""
    *parent_names, name = path
    for part in parent_names:
        form = form.get(part, {})
    form.pop(name, None)
