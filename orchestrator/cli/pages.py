"""The commands that write pages: the report of a run, model or data set, and the comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from orchestrator.cli import completion
from orchestrator.cli.options import (
    NO_GATE,
    GateOptions,
    Json,
    ShowImages,
    StoreOption,
    take_run_options,
)
from orchestrator.cli.store import command_store, output_file
from orchestrator.cli.terminal import emit, show
from orchestrator.errors import SpecError


@take_run_options()
def report(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="A run. [default: the newest one]", autocompletion=completion.runs_and_actions
        ),
    ] = None,
    show_images: ShowImages = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_pdf: Annotated[
        bool,
        typer.Option("--pdf", help="Also save the report as report.pdf, using Chromium, Chrome or Edge."),
    ] = False,
    card: Annotated[
        bool, typer.Option("--card", help="Print a model-index in YAML and a section of text for a model card.")
    ] = False,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The certificate's title.")] = None,
    auditor: Annotated[str | None, typer.Option(metavar="TEXT", help="The auditor's name.")] = None,
    client: Annotated[str | None, typer.Option(metavar="TEXT", help="The client's name.")] = None,
    purpose: Annotated[str | None, typer.Option(metavar="TEXT", help="The purpose of the audit.")] = None,
    details: Annotated[
        str | None,
        typer.Option(metavar="FILE.yaml", help="A YAML file that sets title, auditor, client or purpose."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|SHA256", help="Instead, list all runs that examined this model, table or recording."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME|SHA256", help="Instead, list all runs that examined this data set."),
    ] = None,
    store: StoreOption = None,
    gate: GateOptions = NO_GATE,
    json: Json = False,
) -> int:
    """Write the report of a run, based on the results available so far.

    The report is a single file that works offline. Engram also saves its figures as SVG files in the same folder. If
    the browser for --pdf is not on PATH, set ENGRAM_BROWSER. Title, auditor, client and purpose are stored with the run
    and appear on the certificate, with space for a signature. To remove an entry, pass "". To sign a page or check it,
    use engram report sign and engram report verify.

    With --model or --data, Engram writes the page of a model or data set instead. It lists everything that the runs of
    this store asked about its content, whatever their answers, with failed and cancelled runs.
    """
    from pathlib import Path

    from orchestrator.cli.gate import open_gate, pass_gate
    from orchestrator.inspection import pages, status
    from orchestrator.run_folder import notes as kept

    if model is not None or data is not None:
        own = {"RUN": run, "--card": card, "--title": title, "--auditor": auditor, "--client": client}
        own |= {"--purpose": purpose, "--details": details, "--show-images": show_images}
        return _report_item(model, data, own, browser, as_pdf, store, json)
    options = {"title": title, "auditor": auditor, "client": client, "purpose": purpose}
    if details is None:
        details_of_page = {}
    else:
        details_of_page = kept.load_details(Path(details))
    details_of_page |= {name: text for name, text in options.items() if text is not None}
    with command_store(store) as opened_store:
        if run:
            journal = status.find(opened_store, run)
        else:
            journal = status.newest(opened_store)
        answer_gate = open_gate(gate, journal.about()["audit"])
        if as_pdf:
            pages.check_pdf(opened_store, journal.run)
        if details_of_page:
            kept.give_details(journal.folder, details_of_page)
        page = pages.draw(opened_store, journal.run, bool(show_images))
        printed = None
        if as_pdf:
            printed = pages.print_pdf(page)
        verdict = None
        if card:
            from orchestrator.inspection.card import model_card

            verdict = model_card(journal, opened_store, page)
        code = pass_gate(answer_gate, journal, opened_store)
    if verdict is not None and not json:
        show(verdict)
    elif json:
        if verdict is None:
            card_entry = {}
        else:
            card_entry = {"card": verdict}
        emit({"run": journal.run, "report": str(page), "pdf": None if printed is None else str(printed)} | card_entry)
    else:
        show(str(printed or page))
    if browser:
        typer.launch((printed or page).absolute().as_uri())
    return code


def _report_item(
    model: str | None,
    data: str | None,
    own: Mapping[str, Any],
    browser: bool,
    as_pdf: bool,
    store: str | None,
    json: bool,
) -> int:
    """Write the page of a model or data set. `own` are the options that apply only to the report of a run."""
    from orchestrator.inspection import item_history, pages

    role: Literal["model", "data"] = "model" if model is not None else "data"
    word = model if model is not None else data
    assert word is not None
    given = [name for name, value in {**own, "--data": model and data}.items() if value not in (None, False)]
    if given:
        raise SpecError(f"--{role} is given with {', '.join(given)}; leave out one of them")
    with command_store(store) as opened_store:
        item = item_history.find_item(item_history.read_history(opened_store), word, role)
        page = pages.draw_item(opened_store, item.digest, item.page)
        printed = pages.print_pdf(page) if as_pdf else None
    if json:
        shape = {"kind": item.noun, "name": item.name, "sha256": item.digest, "runs": list(item.runs)}
        emit(shape | {"report": str(page), "pdf": None if printed is None else str(printed)})
    else:
        show(str(printed or page))
    if browser:
        typer.launch((printed or page).absolute().as_uri())
    return 0


def compare(
    a: Annotated[str, typer.Argument(metavar="RUN", help="A run.", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="RUN", help="The other run.", show_default=False)],
    out: Annotated[
        str | None, typer.Option(metavar="FILE.html", help="Also write the comparison to an HTML page.")
    ] = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Compare two runs side by side.

    Shows the settings, environments and answers of both runs, and compares the summaries row by row.
    """
    from orchestrator.cli import verdict
    from orchestrator.inspection import compare, pages, status

    if out is None:
        page = None
    else:
        page = output_file("--out", out, [".html"])
    with command_store(store) as opened_store:
        journals = status.find(opened_store, a), status.find(opened_store, b)
        compared = compare.compare(opened_store, *journals)
        if page is not None:
            pages.compare(opened_store, compared.runs, page)
    if json:
        emit(verdict.comparison_shape(compared))
    else:
        verdict.display_comparison(compared)
