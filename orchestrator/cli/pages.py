"""The commands that write pages: the report of a run and the comparison of two runs."""

from __future__ import annotations

from typing import Annotated

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
    store: StoreOption = None,
    gate: GateOptions = NO_GATE,
    json: Json = False,
) -> int:
    """Write the report of a run, based on the results available so far.

    The report is a single file that works offline. Engram also saves its figures as SVG files in the same folder. If
    the browser for --pdf is not on PATH, set ENGRAM_BROWSER. Title, auditor, client and purpose are stored with the run
    and appear on the certificate, with space for a signature. To remove an entry, pass "". To sign a page or check it,
    use engram report sign and engram report verify.
    """
    from pathlib import Path

    from orchestrator.cli.gate import open_gate, pass_gate
    from orchestrator.inspection import pages, status
    from orchestrator.run_folder import notes as kept

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
