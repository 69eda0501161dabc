"""The situations in which the audit is asked."""

from __future__ import annotations

from tasks.situation import TABLE, Asked, Situation

FEATURE = Asked("feature", "What is in that image? A letter, words:... or picture:FILE", "words:JANE DOE", "A")
PROBE = Asked("probe", "Images of another source, which the models are asked about?", "folder:elsewhere", "photos")
SHAPE = Asked("given.shape", "Height, width and channels of the images that the model takes?", "64,64,1")

SITUATIONS = (
    Situation(
        "data",
        "image",
        (Asked("data", "Which images are trained on?", "folder:scans#64x64#grey", "digits"), PROBE, FEATURE),
        preset="quickstart",
    ),
    Situation(
        "model",
        "image",
        (SHAPE, Asked("given.models", "The model's file?", "model.pt"), PROBE, FEATURE),
        sets={"probes": 200},
    ),
    Situation(
        "outputs",
        "image",
        (
            SHAPE,
            PROBE,
            FEATURE,
            TABLE,
            Asked("given.secret", "The secret with which probes were handed out (empty: none)?", "", optional=True),
        ),
        sets={"probes": 200},
        table="given.outputs",
        secret="given.secret",
    ),
)
