"""The commitment to a draw: a SHA-256 of the audit's whole configuration and the secret.

A nonce that the other party names keeps the first party from choosing the secret. It does not keep it from choosing
what the other party's answers are compared with after these arrive: a provider who picks one of 48 calibration sets for
each owner accuses 32 of 100 innocent owners. So the commitment contains the canonical form of the whole configuration,
as a job's key would. It leaves out the fields that are marked OUTSIDE_COMMITMENT: the nonce, the secret and the other
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

SCHEME = "engram analysis 2"  # another one if the form is ever written otherwise


def draw_of(audit: str, config: Any) -> Draw | None:
    """What the draw of this configuration follows from; None for an audit that draws nothing between two parties."""
    registered = audits.find_installed(audit)
    handout = None if registered is None else registered.audit.handout
    if handout is None or handout.draw is None:
        return None
    draw: Draw | None = handout.draw(config)
    return draw


def committed_configuration(draw: Draw) -> dict[str, Any]:
    """The canonical form of the configuration that a commitment holds: numbers, text, lists and dicts.

    Data enter by their digests. SpecError if one of them is not known yet.
    """
    form: dict[str, Any] = copy.deepcopy(canonical(draw.config))  # whose parts are shared by all keys
    for path in (*_outside_paths(draw.config), *(name.split(".") for name in draw.unused)):
        _remove(form, path)
    return form


def commitment_of(draw: Draw) -> str:
    """The SHA-256 of the committed configuration and the secret, 64 hexadecimal digits.

    Its text is the compact JSON, with sorted names, of the list of SCHEME, the configuration and the secret.
    """
    text = json.dumps([SCHEME, committed_configuration(draw), draw.secret], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def binding_of(draw: Draw | None) -> Binding:
    """What the stated commitment holds: nothing without a nonce, and for one of an earlier version the draw alone."""
    if draw is None or not draw.nonce or not draw.stated:
        return ""
    return "analysis" if draw.stated == commitment_of(draw) else "draw"


def check_commitment(draw: Draw) -> None:
    """Raise ValueError if a commitment is stated, or needed for a nonce, and is not that of this configuration.

    One of an earlier version, which holds only what is drawn from, is accepted: the answer says so.
    """
    if not draw.nonce and not draw.stated:
        return
    expected = commitment_of(draw)
    if draw.stated and draw.stated in (expected, draw.pool_commitment):
        return
    raise ValueError(
        f"commitment is {draw.stated or 'empty'}; with a nonce it must be that of these settings, {expected}: the "
        "whole configuration must stay as it was committed to; compare it with what engram probes --commit printed"
    )


def _outside_paths(config: Any) -> Iterator[list[str]]:
    """The paths of the fields that no commitment holds."""
    for field in dataclasses.fields(config):
        if field.metadata.get(OUTSIDE_COMMITMENT):
            yield [field.name]
            continue
        value = getattr(config, field.name)
        if parts(value) is not None:
            for path in _outside_paths(value):
                yield [field.name, *path]


def _remove(form: dict[str, Any], path: list[str]) -> None:
    """Remove the entry at this path, if it is there: a part without a value has no entries."""
    *above, name = path
    for part in above:
        form = form.get(part, {})
    form.pop(name, None)
