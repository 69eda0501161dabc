"""Errors raised outside tasks, and the exit codes of the commands that they end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def short_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function for Python callers so that an EngramError's traceback ends at this frame."""

    @wraps(function)
    def wrapper(*arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return function(*arguments, **keywords)
        except EngramError as error:
            raise error.with_traceback(None) from None
        except ModuleNotFoundError as error:
            raise missing_package(error) or error from None

    return wrapper


class EngramError(Exception):
    """An error shown to the user as a one-line message. The exit code is 1 unless a subclass sets another."""

    exit_code = 1


def missing_package(error: ModuleNotFoundError) -> EngramError | None:
    """Return an error that names the extra to install. Returns None if no extra contains the missing module."""
    from tasks.contract.extras import (  # during this import, `tasks` may still be the user's
        describe_missing,
        extra_behind,
    )

    extra = extra_behind(error)
    if extra is None:
        return None
    return EngramError(describe_missing([extra]))


class SpecError(EngramError):
    """Invalid usage or configuration. The message names the value, the field and the allowed values."""

    exit_code = 2


class StoreError(EngramError):
    """The store cannot be opened, or one of its files cannot be read."""


class Unwritable(StoreError):
    """The store refuses writes: it is full, read-only or not permitted. The run pauses; no job fails."""


class Absent(StoreError):
    """The store has no result for this key."""


class Damaged(StoreError):
    """The bytes of a result differ from those written. The file has been set aside."""


class Unreadable(StoreError):
    """A result exists but cannot be read at the moment, so it may or may not be intact."""


class Held(EngramError):
    """Another living driver is running this run."""


class ClusterError(EngramError):
    """The Ray cluster cannot be reached or used."""
