from __future__ import annotations
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Predictions:
    path: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Predictions:
        return cls(text)

    def identity(self) -> str:
        return self.digest

    def pin(self, known: Any) -> Predictions:
        return self


class AnswersOf: ...


def read_answers(config: Any, inputs: Any) -> Any: ...
