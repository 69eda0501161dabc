"""The situations in which the audit is asked."""

from __future__ import annotations

from tasks.situation import Asked, Situation

QUESTIONS = Asked(
    "data",
    "Which questions, with their contexts and answers?",
    "records:questions.jsonl",
    "facts",
    sets={"examples": 0, "held_out": 0},
)

SITUATIONS = (
    Situation(
        "data",
        "answer",
        (QUESTIONS, Asked("model", "Which sequence model is fine-tuned on them?", "folder:t5", "tiny-t5")),
        preset="quickstart",
    ),
    Situation(
        "model",
        "answer",
        (Asked("model", "The model's folder, which is fine-tuned here?", "folder:t5"), QUESTIONS),
        preset="quickstart",
    ),
    Situation(
        "outputs",
        "answer",
        (
            QUESTIONS,
            Asked("given", "The folder of answers (empty: none yet)?", "predictions", optional=True),
            Asked("secret", "The secret with which questions were handed out (empty: none)?", "", optional=True),
        ),
        preset="quickstart",
        table="given",
        secret="secret",
    ),
)
