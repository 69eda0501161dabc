"""Parse plain values from YAML text, or raise a one-line error."""

from __future__ import annotations

from typing import Any


class YamlError(ValueError):
    """A one-line description of the problem. `line` and `column` are 1-based, or None if unknown."""

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(problem)
        self.line = line
        self.column = column


def parse_yaml(text: str | bytes) -> Any:
    """Return the parsed value. Raises YamlError for text that is not YAML or contains more than plain values."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Loader for plain YAML values.

        Rejects duplicate keys, and aliases, which can expand a short file enormously.
        """

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=mark)
            return super().compose_node(parent, index)

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ValueError, LookupError, AttributeError, TypeError) as error:
                # The constructors raise various exceptions for a wrong tag or an invalid date.
                kind = node.tag.rpartition(":")[2]
                problem = f"{node.value!r} is not a valid {kind}"
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
        position = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise YamlError(str(error.problem), *position) from None
    except (yaml.YAMLError, ValueError) as error:  # bytes that are not text
        raise YamlError(" ".join(str(error).split())) from None
    except RecursionError:
        raise YamlError("it is nested too deeply") from None
