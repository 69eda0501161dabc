"""The situations in which the audit is asked."""

from __future__ import annotations

from tasks.situation import TABLE, Asked, Situation

# Of data other than the embedded digits all is taken.
WHOLE = {"query.examples": 0}
QUERY = Asked("query.data", "Which images are to be forgotten (D_Q)?", "folder:ours", "digits", sets=WHOLE)
CALIBRATION = Asked(
    "calibration.data",
    "Images of the same domain and shape that are none of these (D_C)?",
    "folder:theirs",
    "digits-on-photos",
    sets={"calibration.first": 0, "calibration.examples": 0},
)
KEPT_BACK = "Images of the same source as D_Q that nobody was ever given"
CONTROL = Asked("query.control.data", f"{KEPT_BACK}?", "folder:kept")
PERHAPS = Asked("query.control.data", f"{KEPT_BACK} (empty: half of D_Q is held back)?", "folder:kept", optional=True)
NETWORK = Asked("network", "The network of the model, for those that it is compared with?", "resnet18", "mlp1")

SITUATIONS = (
    Situation("data", "set", (QUERY, PERHAPS, CALIBRATION, NETWORK), preset="quickstart"),
    Situation(
        "model",
        "set",
        (Asked("given.models", "The model's file?", "model.pt"), QUERY, CONTROL, CALIBRATION, NETWORK),
        preset="quickstart",
    ),
    Situation(
        "outputs",
        "set",
        (
            QUERY,
            PERHAPS,
            CALIBRATION,
            NETWORK,
            TABLE,
            Asked("query.secret", "The secret with which probes were handed out (empty: none)?", "", optional=True),
        ),
        preset="quickstart",
        table="given.outputs",
        secret="query.secret",
    ),
)
