"""The commitment to a draw: a SHA-256 of the audit's whole configuration and the secret.

A nonce chosen by the other party prevents the first party from choosing the secret. It does not prevent the first party
from choosing a comparison after the other party's answers arrive: a provider who picks one of 48 calibration sets for
each owner accuses 32 of 100 innocent owners. Therefore the commitment contains the canonical form of the whole
configuration, as a job's key would. It omits the fields marked OUTSIDE_COMMITMENT: the nonce, the secret and the other
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

SCHEME = "engram analysis 2"  # changes with the form


def draw_of(audit: str, config: Any) -> Draw | None:
    """The inputs of this configuration's draw; None for an audit without a draw between two parties."""
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
    """The canonical form of the configuration in a commitment: numbers, text, lists and dicts.

    Data enter by their digests. Raises SpecError if a digest is not known yet.
    """
    form: dict[str, Any] = copy.deepcopy(canonical(draw.config))  # its parts are shared by all keys
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
    """The scope of the stated commitment: empty without a nonce; only the draw for one of an earlier version."""
    if draw is None or not draw.nonce or not draw.stated:
        return ""
    if draw.stated == commitment_of(draw):
        return "analysis"
    return "draw"


def check_commitment(draw: Draw) -> None:
    """Raise ValueError if a commitment is stated, or required by a nonce, and does not match this configuration.

    A commitment of an earlier version, which covers only the pool of the draw, is accepted; the answer states this.
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
    """The paths of the fields outside the commitment."""
    for field in dataclasses.fields(config):
        if field.metadata.get(OUTSIDE_COMMITMENT):
            yield [field.name]
            continue
        value = getattr(config, field.name)
        if parts(value) is not None:
            for path in _outside_paths(value):
                yield [field.name, *path]


def _remove(form: dict[str, Any], path: list[str]) -> None:
    """Remove the entry at this path if it exists; a part without a value has no entries."""
    *parent_names, name = path
    for part in parent_names:
        form = form.get(part, {})
    form.pop(name, None)
