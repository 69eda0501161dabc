"""The command that audits one model with its members and other data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from orchestrator import model_audit
from orchestrator.cli.options import (
    NO_GATE,
    NO_OPTIONS,
    GateOptions,
    Json,
    RunOptions,
    StoreOption,
    take_run_options,
)
from orchestrator.cli.run import run_to_completion
from orchestrator.errors import EngramError, SpecError
from orchestrator.model_audit import REFERENCES, ModelAndFolders
from orchestrator.spec.specification import settings
from orchestrator.store import store_location

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL MEMBERS OTHERS [FIELD=VALUE]...",
        help="A model file or a table of its outputs (.csv, .parquet), its training images, and images of the same "
        "source that it was not trained on: folders with one sub-folder per class, lists, tables with --label, or "
        "names of data sets. Fields change the configuration of membership.",
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        metavar="HEIGHTxWIDTH", help="The size of the images. [default: theirs, or the one that the model takes]"
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="The sets are tables of features (.csv, .parquet) with this column of classes.",
    ),
]
References = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help=f"Train N reference models on halves of both sets (such as {REFERENCES}), for a stronger attack and an "
        "exact p-value per record.",
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="NAME",
        help="The untrained network of the reference models: mlp1, cnn1, cnn2, or your own package.module:function.",
    ),
]
Example = Annotated[bool, typer.Option("--example", help="Audit a small model that is trained on embedded data first.")]


@take_run_options("audit")
def audit(
    words: Words = None,
    size: Size = None,
    label: Label = None,
    references: References = None,
    network: NetworkOption = None,
    example: Example = False,
    store: StoreOption = None,
    options: RunOptions = NO_OPTIONS,
    gate: GateOptions = NO_GATE,
    json: Json = False,
) -> int:
    """Audit one trained model: does it treat its training data differently from other data?

    Takes seconds, in this process. The loss of the model is compared on both sets, and a control without the model
    tests whether the sets differ by themselves. With --references, the loss is compared with that of models that are
    trained here.
    """
    store_location(store)  # refused before anything is read
    execution = options.settings()
    if references is None:
        execution = {"address": "none", **execution}
    if example:
        if words or size or label or references is not None or network:
            raise SpecError("--example takes neither files nor --size, --label, --references or --network")
        spec = model_audit.example_spec()
        files = None
    else:
        files, fields = _split(words or [], size, label)
        if network is not None and references is None:
            raise SpecError(f"--network is given without --references; add --references {REFERENCES}")
        spec = model_audit.file_spec(files, fields, references, network)
    spec = replace(spec, execution=execution, store=store)
    next_step: Callable[[], str] | None = None
    if references is None:
        next_step = partial(_next_step, files, store)
    elif references < REFERENCES:
        next_step = partial(model_audit.describe_few_references, references)
    return run_to_completion(lambda: spec, gate, json, next_step)


def _split(words: list[str], size: str | None, label: str | None) -> tuple[ModelAndFolders, dict[str, str]]:
    """Return the model and both sets, and the fields. Raises SpecError unless there are three paths."""
    paths: list[str] = []
    while words and len(paths) < 3 and not _is_field(words[0]):
        paths.append(words.pop(0))
    if len(paths) < 3:
        missing = ("MODEL", "MEMBERS", "OTHERS")[len(paths)]
        raise SpecError(
            f"{missing} is missing; give a model file or a table of its outputs, the folder of its training images, "
            "and a folder of other images, or --example"
        )
    model, members, others = paths
    return ModelAndFolders(model, members, others, size, label), dict(settings(words))


def _is_field(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.replace(".", "").replace("_", "").isalnum()


def _next_step(files: ModelAndFolders | None, store: str | None) -> str:
    """Return the line on stronger evidence, with its cost if the file names the network of the model."""
    if files is None or model_audit.network_of(files) is None:
        return model_audit.describe_stronger(files)
    return model_audit.describe_stronger(files, _price(files, store))


def _price(files: ModelAndFolders, store: str | None) -> str:
    """Return the expected time of an audit with reference models, or an empty string if it cannot be planned."""
    from orchestrator.inspection.preview import preview
    from orchestrator.quantities import approximate_duration

    try:
        price = preview(replace(model_audit.file_spec(files, {}, REFERENCES), store=store))
    except EngramError:
        return ""
    if price["expected_seconds"] is not None:
        return f"about {approximate_duration(price['expected_seconds'])}"
    if price["seconds_high"] is not None:
        return f"at most {approximate_duration(price['seconds_high'])}"
    return ""
