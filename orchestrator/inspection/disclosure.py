"""Disclosure: the parts of a run's configuration that leave the machine, on pages and to MLflow.

The terminal and the run's folder show the whole configuration because neither is shared. The types of a configuration
declare its private parts. A value with a `named()` method, such as a file or a data set, is shown by its name and the
digest of its content, without its folders. If a field's metadata has a WITHHELD function, the field is shown as the
pattern that this function returns, in angle brackets: `<4 and 3 letters>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError, SpecError
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.spec.config_parts import flatten, plain, rebuild
from orchestrator.spec.fields import coerce, field_types, replace_fields, split_list, text
from tasks.worker.files import WITHHELD

UNKNOWN = "<withheld>"  # replaces text if the audit is not installed, so that it is unknown which text is private
PLAIN_WORD = re.compile(r"true|false|null|none|[-+.\deE]+", re.IGNORECASE)  # words that reveal nothing private
RANGE = re.compile(r"(log\()?[-+.\deE]+\)?")  # a numeric range in a search


class Disclosure:
    """Reduces configurations to their public parts.

    Different values stay different, because texts with the same pattern are numbered. If `words` is true, no text is
    withheld. Folders are always omitted.
    """

    def __init__(self, words: bool = False) -> None:
        self.words = words
        self._stand_ins: dict[str, str] = {}
        self._public_runs: dict[str, dict[str, Any]] = {}  # by complete content, since a page reads a run many times

    def journal(self, folder: Path) -> Journal:
        """Return the journal of the run or sweep in this folder, and of its cells, reduced to the public part."""
        return Journal(folder, self._about)

    def public(self, value: Any) -> Any:
        """Return a value of the same type without its private parts."""
        if hasattr(value, "named"):
            return value.named()
        return rebuild(value, self._part)

    def _part(self, field_value: Any, metadata: Mapping[Any, Any]) -> Any:
        """Return the public value of a field with this metadata."""
        withheld = None
        if not self.words:
            withheld = metadata.get(WITHHELD)
        if withheld is None or field_value == "":  # an empty text is not private
            return self.public(field_value)
        if isinstance(field_value, tuple):
            return tuple(self._stand_in(text, withheld(text)) for text in field_value)
        return self._stand_in(field_value, withheld(field_value))

    def _stand_in(self, text: str, pattern: str) -> str:
        if text not in self._stand_ins:
            number = 1
            stand_in = f"<{pattern}>"
            while stand_in in self._stand_ins.values():
                number += 1
                stand_in = f"<{pattern} ({number})>"
            self._stand_ins[text] = stand_in
        return self._stand_ins[text]

    def _about(self, folder: Path, about: dict[str, Any]) -> dict[str, Any]:
        """Return the public content of `run.json`.

        The reasons for skipped cells are omitted because they name files.
        """
        about = {name: value for name, value in about.items() if name != "left_out"}
        if "cells" in about:
            cells = [Journal(folder.with_name(name)).about() for name in about["cells"]]
            settings = about.get("settings") or [cell.get("setting") for cell in cells]
            pairs = zip(cells, settings, strict=True)
            public_settings = [self._setting(typed_config(cell), setting or {}) for cell, setting in pairs]
            first = typed_config(cells[0])
            search = {}
            if "search" in about:
                search = {"search": self._search(first, about["search"])}
            return {**about, "settings": public_settings, **self._public_spec(about, first, public_settings), **search}
        if "config" not in about:
            return about
        content = json.dumps(about, sort_keys=True)
        if content not in self._public_runs:
            self._public_runs[content] = self._about_run(about)
        return dict(self._public_runs[content])

    def _about_run(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return the public content of the `run.json` of a single run."""
        config = typed_config(about)
        if config is None:
            public_config = _redact_text(about["config"])
        else:
            public_config = plain(self.public(config))
        if config is not None and plain(config) == public_config:
            public_config = about["config"]  # as stored, without fields that the code gained later
        setting = {}
        if about.get("setting"):
            setting = {"setting": self._setting(config, about["setting"])}
        return {**about, "config": public_config, **setting, **self._public_spec(about, config, [])}

    def _public_spec(
        self, about: Mapping[str, Any], config: Any, settings: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the public specification. Swept values appear as in the settings of the cells."""
        if "asked" not in about:
            return {}
        specification = about["asked"]
        fields = self._setting(config, specification.get("set", {}))
        sweep = {}
        for name in specification.get("sweep", {}):
            for values in [[setting.get(name, UNKNOWN) for setting in settings]]:
                sweep[name] = [value for index, value in enumerate(values) if value not in values[:index]]
        return {"asked": {**specification, "set": fields, "sweep": sweep}}

    def _search(self, config: Any, search: Mapping[str, Any]) -> dict[str, Any]:
        """Return the public part of a search's settings and `chosen` values, given the configuration it starts from."""
        over = {}
        for name, domain in search["over"].items():
            over[name] = (
                domain
                if RANGE.fullmatch(domain)
                else ",".join(
                    text(self._public_choices(config, {name: value})[name]) for value in split_list(f"[{domain}]")
                )
            )
        public = {**search, "over": over, "set": self._setting(config, search.get("set", {}))}
        if "chosen" in search:
            public["chosen"] = [self._public_choices(config, setting) for setting in search["chosen"]]
        return public

    def _public_choices(self, config: Any, setting: Mapping[str, Any]) -> dict[str, Any]:
        """Return the public values of fields that differ from the configuration, including values that it rejects."""
        public = {}
        for name, value in setting.items():
            try:
                if config is None:
                    changed_config = None
                else:
                    changed_config = replace_fields(config, {name: value})
            except SpecError:
                changed_config = None
            plain_word = not isinstance(value, str) or PLAIN_WORD.fullmatch(value)
            if changed_config is None and plain_word:
                public[name] = value
            else:
                public[name] = self._public_value(changed_config, name, value)
        return public

    def _setting(self, config: Any, setting: Mapping[str, Any]) -> dict[str, Any]:
        """Return the public values of a setting, in their stored form."""
        result = {}
        for name, value in setting.items():
            result[name] = self._public_value(config, name, value)
        return result

    def _public_value(self, config: Any, name: str, value: Any) -> Any:
        path = name.split(".")
        if config is None:
            return _redact_text(value)
        kind: Any = type(config)
        if path[0] not in field_types(kind):
            return value  # `scale` is not a configuration field
        private_part = config
        public_value = self.public(config)
        for part in path:
            if not hasattr(private_part, part):
                return _redact_text(value)
            private_part = getattr(private_part, part)
            public_value = getattr(public_value, part)
        if private_part == public_value:
            return value
        if isinstance(value, str) and hasattr(type(private_part), "parse"):  # as entered, before pinning
            with suppress(ValueError):  # it was given as JSON
                return str(self.public(type(private_part).parse(value)))
        return plain(public_value)


def typed_config(about: Mapping[str, Any]) -> Any:
    """Return a run's configuration as the audit's configuration type.

    Returns None if the audit is not installed or its configuration has changed since the run.
    """
    try:
        return coerce(about["config"], audits.find(about["audit"]).audit.config, "config")
    except (EngramError, KeyError):
        return None


def recorded_settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded settings of a run by dotted path, without those that say only how its jobs run."""
    settings = dict(flatten(about["config"]))
    config = typed_config(about)
    if config is not None:
        affecting_results = dict(flatten(plain(config, has_execution=False)))
        for name in dict(flatten(plain(config))).keys() - affecting_results.keys():
            settings.pop(name, None)
    return settings


def is_private(value: Any) -> bool:
    """Return whether any part of the value is withheld."""
    return bool(Disclosure().public(value) != value)


def _redact_text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _redact_text(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_redact_text(part) for part in value]
    if isinstance(value, str):
        return UNKNOWN
    return value
