"""The situations in which the audit is asked."""

from __future__ import annotations

from tasks.situation import Asked, Situation

SITUATIONS = (
    Situation(
        "data",
        "unknown",
        (
            Asked("data", "Which images?", "folder:scans#28x28#grey", "digits"),
            Asked("model", "Which density model?", "conv-vae", "vae"),
        ),
        preset="quickstart",
    ),
)
