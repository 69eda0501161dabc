"""A specification: audit, preset, fields, and the grid of a sweep.

    unique_feature --preset quickstart canaries=4 --sweep training.rate=1e-3,3e-4

The same can be written as a YAML file with `audit, preset, set, sweep, execution`. The command line overrides the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import ClusterError, SpecError
from orchestrator.spec.fields import coerce, nearest, text
from orchestrator.spec.options import GPUS, KEEPS, Execution
from orchestrator.sqlite_uri import SCHEME, sqlite_path, sqlite_uri
from tasks.worker.compute_context import STRATEGIES

PLACES = ("none", "pool", "local", "auto")  # cluster addresses that are keywords
DEFAULT_CLIENT_PORT = 10001
# A dotted host name or an IPv6 address. Anything else is rejected before the lookup, which may crash on it.
V6 = r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?"
HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?" + rf"|{V6}|\[{V6}\]", re.ASCII)
PORT_NUMBER = re.compile("[0-9]{1,5}")


def host_and_port(address: str) -> tuple[str, int]:
    """Split HOST:PORT or ray://HOST[:PORT] into its parts. Raises ClusterError for anything else."""
    scheme, _, rest = address.rpartition("://")
    host, separator, port = rest.rpartition(":")
    if scheme == "ray" and not separator:
        host = rest
        port = str(DEFAULT_CLIENT_PORT)
    is_valid = HOST.fullmatch(host) and len(host) < 256 and PORT_NUMBER.fullmatch(port) and 0 < int(port) < 65536
    if scheme not in ("", "ray") or not is_valid:
        raise ClusterError(
            f"{address!r} is not the address of a Ray cluster; use HOST:PORT, ray://HOST:PORT, auto, local or none"
        )
    return host.strip("[]"), int(port)


def absolute_uri(uri: str) -> str:
    """Return the URI or path independent of the working directory. Raises SpecError if it is invalid."""
    if uri.startswith("file:///"):
        return uri
    if uri.startswith(SCHEME):
        file, mark, options = uri.partition("?")
        path = sqlite_path(file)
        if path is None or path.is_absolute():
            return uri
        return sqlite_uri(path.absolute()) + mark + options
    if "://" in uri or uri.startswith("databricks"):
        try:
            parts = urlsplit(uri)
            parts.port  # noqa: B018 -- raises if it is not a number
        except ValueError as error:  # the URI may contain a password, so the message does not repeat it
            raise SpecError(f"the URI of the tracking store is invalid: {error}; pass a valid URI, or off") from None
        if parts.scheme in ("http", "https") and not parts.hostname:
            raise SpecError(f"the tracking store's URI names no server; write {parts.scheme}://HOST:PORT")
        return uri
    if not uri.strip():
        raise SpecError("the URI of the tracking store is empty; pass a URI, or off")
    return Path(os.path.expanduser(uri)).absolute().as_uri()


@dataclass(frozen=True)
class Spec:
    """A user's specification, not yet checked against the audit.

    `execution` and `search` contain only the options that were given. `search` is used only by `engram search`.
    """

    audit: str
    preset: str | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    execution: Mapping[str, Any] = field(default_factory=dict)
    store: str | None = None
    search: Mapping[str, Any] = field(default_factory=dict)

    @property
    def all_cells(self) -> bool:
        """Whether to refuse the run if data for a preset cell are missing. By default such cells are skipped."""
        return bool(self.execution.get("all_cells"))

    @property
    def same_code(self) -> bool:
        """Whether changes to the user's code are accepted, so that results of the earlier code are reused."""
        return bool(self.execution.get("same_code"))

    @property
    def download(self) -> bool:
        """Whether to download data sets of the Hugging Face hub that are not in the cache."""
        return bool(self.execution.get("download"))

    def override_with(self, overriding: Spec) -> Spec:
        """Return this specification overridden by another one. A field is either set or swept, never both."""
        set_fields = {}
        for name, value in self.set.items():
            if name not in overriding.sweep:
                set_fields[name] = value
        swept_fields = {}
        for name, values in self.sweep.items():
            if name not in overriding.set:
                swept_fields[name] = values
        return Spec(
            self.audit,
            overriding.preset or self.preset,
            {**set_fields, **overriding.set},
            {**swept_fields, **overriding.sweep},
            {**self.execution, **overriding.execution},
            overriding.store or self.store,
            {**self.search, **overriding.search},
        )


def execution(spec: Spec) -> Execution:
    """Check the execution settings of a specification and return them."""
    options = dict(spec.execution)
    together = options.get("together")
    tolerate = options.get("tolerate", 0)
    if together is not None and together < 1:
        raise SpecError(f"together is {together}; it must be auto, or 1 or more")
    if tolerate < 0:
        raise SpecError(f"tolerate is {tolerate}; it must be 0 or more")
    if (way := options.get("way", "auto")) not in STRATEGIES:
        raise SpecError(f"way is {way!r}; it must be one of {', '.join(STRATEGIES)}{nearest(str(way), STRATEGIES)}")
    if (keep := options.get("keep", "none")) not in KEEPS:
        raise SpecError(f"keep is {keep!r}; it must be one of {', '.join(KEEPS)}{nearest(str(keep), KEEPS)}")
    if (address := options.get("address")) is not None:
        _check_address(address)
    if (gpus := options.get("gpus", "auto")) not in GPUS:
        raise SpecError(f"gpus is {gpus!r}; it must be one of {', '.join(GPUS)}{nearest(str(gpus), GPUS)}")
    if gpus == "wait" and address in (None, "local", "none"):
        raise SpecError("gpus=wait requires the --address of a cluster, because no other machine can join otherwise")
    for name in ("gpus_per_job", "processes_per_job"):
        if (count := options.get(name, 1)) < 1:
            raise SpecError(f"{name} is {count}; it must be 1 or more")
    if (per_job := options.get("gpus_per_job", 1)) > 1 and (address == "none" or gpus == "none"):
        raise SpecError(
            f"gpus_per_job is {per_job}; it must be 1 if address or gpus is none, which use no GPUs. To train each "
            f"model on several processors, use processes_per_job={per_job}."
        )
    if options.get("dashboard") and address not in (None, "local"):
        raise SpecError(
            f"dashboard cannot be combined with address {address}; it requires address local, which starts a cluster"
        )
    for name in ("max_gpu_hours", "max_cost"):
        if (limit := options.get(name)) is not None and not limit > 0:
            raise SpecError(f"{name} is {limit}; it must be above 0")
    if (options.get("max_cost") is None) != (options.get("prices") is None):
        raise SpecError("max_cost and prices must be set together: a limit, and a YAML file with prices per hour")
    if (uri := options.get("mlflow")) is not None:
        absolute_uri(uri)
    return Execution(**options)


def _check_address(address: str) -> None:
    """Raise SpecError for an invalid cluster address. The cluster itself is contacted only when it is used."""
    if address not in PLACES:
        try:
            host_and_port(address)
        except ClusterError as error:
            raise SpecError(str(error)) from None


def _setting(text: str) -> tuple[str, str]:
    """Split `field=value`, as given on a command line."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SpecError(f"{text!r} is not a setting; write it as field=value")
    return name, value


def settings(texts: Iterable[str]) -> dict[str, str]:
    """Parse `field=value` texts. Raises SpecError if a field is given twice with different values."""
    fields: dict[str, str] = {}
    for name, value in map(_setting, texts):
        if fields.setdefault(name, value) != value:
            raise SpecError(f"{name} is given twice: {fields[name]!r} and {value!r}")
    return fields


def sweeps(texts: Iterable[str]) -> dict[str, list[str]]:
    """Parse `field=a,b,c` texts. Commas inside brackets do not separate values: `epochs=[1,2],[3,4]`."""
    fields: dict[str, list[str]] = {}
    for name, value in map(_setting, texts):
        values = [part.strip() for part in re.split(r",(?![^\[(]*[\])])", value)]
        if name in fields:
            raise SpecError(f"{name} is swept twice; list all its values together, as in --sweep {name}=a,b,c")
        if not all(values):
            raise SpecError(f"--sweep {name}={value}: a value is empty; write --sweep field=a,b,c")
        fields[name] = values
    return fields


def search_domains(domains: Any) -> dict[str, Any]:
    """Return the values that may vary, by field. Returns an empty dict for None."""
    if domains is None:
        return {}
    if not isinstance(domains, Mapping):
        raise SpecError(
            f"over is {domains!r}; it must be a mapping, as in {{'rate': 'log(1e-4..1e-2)', 'wide': [True]}}"
        )
    result = {}
    for name, value in domains.items():
        result[coerce(name, str, "a field of over")] = _domain(value)
    return result


def _domain(value: Any) -> Any:
    """Return text unchanged, and values in any collection as a list."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return list(value)
    return value


def sweep_values(sweep: Any) -> dict[str, tuple[Any, ...]]:
    """Return the values of each swept field. Returns an empty dict for None."""
    if sweep is None:
        return {}
    if not isinstance(sweep, Mapping):
        raise SpecError(f"sweep is {sweep!r}; it must be a mapping, as in {{'seed': [1, 2]}}")
    result = {}
    for name, values in sweep.items():
        result[coerce(name, str, "a field of sweep")] = _values(values, f"sweep.{name}")
    return result


def _values(values: Any, field_path: str) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise SpecError(f"{field_path} is {values!r}; it must be a list of values, as [{text(values)}]")
    if not (value_list := tuple(values)):
        raise SpecError(f"{field_path} has no values")
    return value_list


def name_or_path(value: Any, name: str, meaning: str) -> str:
    """Return a string or path as text. Raises SpecError, quoting `meaning`, for empty text and for anything else."""
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path:
        raise SpecError(f"{name} is {value!r}; it must be {meaning}")
    return path
