"""YAML that a user wrote, as plain values: each name once, nothing built, and no short text that becomes immense."""

from __future__ import annotations

from typing import Any


class YamlError(ValueError):
    """What is wrong with the text, in one line; `line` and `column` count from 1, where known."""

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(problem)
        self.line, self.column = line, column


def loaded(text: str | bytes) -> Any:
    """The value; YamlError for what is not YAML, or more than plain values."""
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML's plain values; each key once, and no aliases, which can make a short file immense."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=mark)
            return super().compose_node(parent, index)

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ValueError, LookupError, AttributeError, TypeError) as error:
                # A tag on what it does not fit, or a date that there is none of, raises whatever its reader runs into.
                kind = node.tag.rpartition(":")[2]
                problem = f"{node.value!r} is no {kind}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if str(key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise YamlError(str(error.problem), *place) from None
    except (yaml.YAMLError, ValueError) as error:  # bytes that are no text
        raise YamlError(" ".join(str(error).split())) from None
    except RecursionError:
        raise YamlError("it is nested too deeply") from None
