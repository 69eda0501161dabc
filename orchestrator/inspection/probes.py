"""Write an audit's probes to a folder: the images, records or questions that an external model evaluates.

For images, the model returns outputs or embeddings.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator.errors import EngramError, SpecError
from orchestrator.planning.commitment import check_commitment, commitment_of, committed_configuration
from orchestrator.spec.audits import find
from orchestrator.spec.config_parts import differing_paths, plain
from orchestrator.spec.fields import replace_fields
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from orchestrator.store import is_there, open_store, store_location
from tasks.contract.audit import Handout
from tasks.datasets.dataset import DatasetError
from tasks.external.blinding import Split, write_private
from tasks.external.bound_draw import Draw


def hand_out(spec: Spec, folder: Path, nonce: str | None = None, nonce_by: str | None = None) -> dict[str, Any]:
    """Write the audit's probes (images, records or questions) to this folder and return their number per set.

    If only the auditor may identify the probes, a key file is written next to the folder: `key` is its path,
    `commitment` its SHA-256, which the owner receives, `split` the file that states where the probes come from, if
    there is one, and `warning` a note to read before sending the folder. A nonce binds the draw, and `settings` are the
    settings that give a run the same nonce.

    Raises SpecError for an audit without probes, for a specification with more than one configuration, and for a nonce
    without effect. Raises EngramError if data are missing or the folder cannot be written. A store is read only for its
    cached data set digests.
    """
    handout = _handout(spec)
    config = _pin_config(spec, handout)
    if nonce is None:
        settings = {}
    else:
        settings = _name_nonce(spec, handout, config, nonce, nonce_by)
    config = replace_fields(config, settings)
    try:
        draw: Draw | None = None if handout.draw is None else handout.draw(config)
        if draw is not None:
            check_commitment(draw)
        sets = list(handout.probes(config))
        data_split: Split | None = None if handout.split is None else handout.split(config)
        if data_split is None:
            private_files = {}
        else:
            private_files = data_split.files_beside(folder)
        if data_split is None or data_split.warning:
            commitment = ""
        else:
            commitment = data_split.commitment
        kind, table = _write_probes(folder, sets, commitment, draw, handout.columns)
        write_private(private_files)
    except DatasetError as error:  # data removed since it was pinned, or a folder with other content
        raise EngramError(str(error)) from None
    except ValueError as error:
        raise SpecError(f"{spec.audit}: {error}") from None
    except OSError as error:
        raise EngramError(f"cannot write {folder}: {os.strerror(error.errno) if error.errno else error}") from None
    summary = {"folder": str(folder), kind: table.num_rows, "sets": dict(Counter(table["set"].to_pylist()))}
    if settings:
        summary["settings"] = [f"{name}={value}" for name, value in settings.items()]
    if data_split is not None:
        summary |= dict(zip(("key", "split"), map(str, private_files), strict=False))
        # If the owner can guess the order, a commitment proves nothing.
        if data_split.warning:
            summary |= {"warning": data_split.warning}
        else:
            summary |= {"commitment": data_split.commitment}
    return summary


@dataclass(frozen=True)
class Commitment:
    """A commitment, sent before anyone chooses a nonce, and the configuration that it covers.

    A reader can compute the commitment from the configuration and the secret.
    """

    commitment: str
    configuration: Mapping[str, Any]


def commit_draw(spec: Spec) -> Commitment:
    """Return the commitment to the configuration and the secret.

    Raises SpecError for an audit without a secret draw and for an empty secret, and the errors of `hand_out`.
    """
    handout = _handout(spec)
    draw = _draw(spec, handout, _pin_config(spec, handout))
    return Commitment(_commit_to(draw, handout), committed_configuration(draw))


def _draw(spec: Spec, handout: Handout, config: Any) -> Draw:
    draw: Draw | None = None if handout.draw is None else handout.draw(config)
    if draw is None:
        raise SpecError(f"{spec.audit} has no secret draw; --commit and --nonce do not apply")
    return draw


def _commit_to(draw: Draw, handout: Handout) -> str:
    if not draw.secret:
        raise SpecError(f"{handout.secret} is empty; give one, such as {handout.secret}=$(openssl rand -hex 16)")
    return commitment_of(draw)


def _name_nonce(spec: Spec, handout: Handout, config: Any, nonce: str, nonce_by: str | None) -> dict[str, str]:
    """Return the settings of a draw that is bound by this nonce, by configuration path."""
    if not nonce:
        raise SpecError("--nonce is empty; it must be the text that the owner chose after receiving the commitment")
    commitment = _commit_to(_draw(spec, handout, config), handout)
    path_prefix = handout.secret.removesuffix("secret")
    settings = {f"{path_prefix}commitment": commitment, f"{path_prefix}nonce": nonce}
    return settings | ({f"{path_prefix}nonce_by": nonce_by} if nonce_by is not None else {})


def _handout(spec: Spec) -> Handout:
    handout = find(spec.audit).audit.handout
    if handout is None:
        raise SpecError(f"{spec.audit} has no probes: it does not evaluate an external model")
    return handout


def _pin_config(spec: Spec, handout: Handout) -> Any:
    """Return the configuration of the probes with its data pinned.

    Raises SpecError if there are several configurations.
    """
    cells = resolve_cells(spec)
    if len(cells) > 1:
        fields = ", ".join(differing_paths([plain(cell.config) for cell in cells]))
        raise SpecError(f"the specification has {len(cells)} cells; select one by setting {fields}")
    location = store_location(spec.store)
    cached_digests = open_store(location, create=False).digests() if is_there(location) else {}
    (cell,) = pin_cells([replace(cells[0], config=handout.config(cells[0].config))], cached_digests)
    return cell.config


def _write_probes(
    folder: Path, sets: list[tuple[str, Any]], commitment: str, draw: Draw | None, columns: str
) -> tuple[str, pa.Table]:
    """Write the probes. Returns their kind, `images`, `records` or `questions`, and the table that lists them."""
    from tasks.datasets.records import Records
    from tasks.external.handout import ToEmbed, write_pictures, write_to_embed
    from tasks.external.text_handout import write_questions, write_records
    from tasks.question_answering.question_sets import ProbeQuestions

    types: dict[type, tuple[str, Callable[[Path, list[tuple[str, Any]]], pa.Table]]] = {
        Records: ("records", partial(write_records, commitment=commitment, draw=draw, columns=columns)),
        ProbeQuestions: ("questions", partial(write_questions, commitment=commitment, draw=draw)),
        ToEmbed: ("images", write_to_embed),
    }
    images = ("images", partial(write_pictures, commitment=commitment, draw=draw))
    kinds = set()
    for _, probes in sets:
        kinds.add(
            next((types[type_of_probes] for type_of_probes in types if isinstance(probes, type_of_probes)), images)
        )
    if len(kinds) > 1:
        names = sorted({kind for kind, _ in kinds})
        raise ValueError(f"its probes are {' and '.join(names)}; they must all be of one kind")
    kind, write = kinds.pop() if kinds else images
    return kind, write(folder, sets)
