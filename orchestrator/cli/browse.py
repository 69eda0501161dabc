"""The command that opens MLflow's pages."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Experiment, Json, Mlflow, StoreOption
from orchestrator.cli.store import command_store
from orchestrator.cli.terminal import emit, say, show


def ui(
    port: Annotated[int, typer.Option(metavar="N", help="The next free one is taken.", min=1, max=65535)] = 5000,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    store: StoreOption = None,
    mlflow: Mlflow = None,
    experiment: Experiment = None,
    json: Json = False,
) -> int:
    """Serve MLflow's pages of the runs, until Ctrl-C.

    The link opens the list of runs. Only this machine can reach it.
    """
    from orchestrator.errors import EngramError
    from orchestrator.tracking import ui
    from orchestrator.tracking.tracking_store import target

    def announce(link: str, hint: str = "") -> None:
        if json:
            emit({"url": link})
        else:
            show(link)
            if hint:
                say(hint)
        if browser:
            typer.launch(link)

    with command_store(store) as opened:
        where = target(opened, mlflow, experiment)
        if where is None:
            raise EngramError("tracking is off, so there is nothing to show; name the tracking store by --mlflow")
        if where.remote:
            announce(ui.link(where.public_uri, where.experiment))
            return 0
        ui.check(opened, where)
        try:
            with ui.serving(opened, where, port) as (server, free):
                if free != port:
                    say(f"port {port} is taken; this is port {free}")
                announce(ui.link(f"http://{ui.HOST}:{free}", where.experiment), "Ctrl-C ends it")
                server.wait()
        except KeyboardInterrupt:
            return 0
        raise EngramError(f"MLflow's server has ended by itself; what it said is in {ui.log(opened)}")
