"""Questions and answers as text, and text as answers."""

from __future__ import annotations

from tasks.datasets.questions.question import Answer, Scorer

BETWEEN = ", "  # spans of an answer


def question_text(question: str, context: str) -> str:
    """A question about a context, as T5 is asked it. Raffel et al. 2020, appendix D.15."""
    return f"question: {question} context: {context}"


def answer_text(answer: Answer) -> str:
    """An answer as a model gives it: its spans one after another."""
    return BETWEEN.join(answer)


def parse_answer(text: str, scorer: Scorer) -> Answer:
    """What a model said as an answer: its spans, where answers may have several; empty where it said nothing."""
    parts = text.split(BETWEEN) if scorer == "drop" else [text]
    return tuple(part.strip() for part in parts if part.strip())
