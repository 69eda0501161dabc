"""Models in a config: built-in models, or users' models pinned by the digest of their source.

A user's model is written `package.module:factory`, or `...:factory@digest` with the digest of its source. A
classifier's factory takes the image shape (channels, height, width), or (features,) for a table, and the number of
classes. It returns a torch.nn.Module that maps images (rows, channels, height, width) in [0, 1], or rows of features,
to logits (rows, classes). After the prefix `sklearn:`, it returns a scikit-learn estimator (`tasks.models.estimators`).
`tasks.training.custom_density` describes factories of density models. Naming a factory imports no code.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from tasks.contract.pinnable import PinnedName
from tasks.user_code.acceptance import digest_in_keys
from tasks.user_code.closure import SourceFile, digest_of_files, find_files

T = TypeVar("T", bound="Named")
NAMED = 5  # source files listed in an error
TRAINING = "training"  # noun of functions that train
ESTIMATOR = "sklearn:"  # prefix of a scikit-learn estimator


@dataclass(frozen=True)
class Named(PinnedName):
    """A model by name. A user's model is pinned once `digest`, the digest of its source, is set.

    Written as a built-in name, `package.module:factory` or `package.module:factory@digest`.
    """

    noun: ClassVar[str] = "source of a network"
    choices: ClassVar[str]  # the valid names, as a phrase that completes "it must be"

    @classmethod
    def parse(cls, text: str) -> Self:
        name, _, digest = text.partition("@")
        return cls(name, digest)

    def identity(self) -> str:
        if not is_own(self.name):
            return self.name
        if not self.digest:
            raise ValueError(f"network {self.name!r} has no digest yet; pin it before planning")
        prefix = ESTIMATOR if is_estimator(self.name) else ""
        return f"{prefix}{Factory.parse(self.name).function}@{digest_in_keys(self.digest)}"

    def pin(self, known_digests: MutableMapping[str, str]) -> Self:  # noqa: ARG002 - a source is short
        """Return the model, with the digest of its source if it is a user's model.

        Raises ValueError if it does not exist.
        """
        return pin(self)

    def paths(self) -> tuple[Path, ...]:
        if is_own(self.name):
            return tuple(sources(Factory.parse(str(self))).values())
        return ()

    def check(self) -> None:
        """Raise ValueError unless the name is that of a built-in model or has the form of a user's model."""
        raise NotImplementedError


def is_estimator(name: str) -> bool:
    """Return whether the name refers to a scikit-learn estimator, from scikit-learn or from a user's factory."""
    return name.startswith(ESTIMATOR)


def is_own(name: str) -> bool:
    """Return whether the name refers to a user's model."""
    return ":" in name.removeprefix(ESTIMATOR)


def pin(model: T) -> T:
    """Return the model, with the current digest of its source if it is a user's model.

    Raises ValueError if it does not exist or differs from the pinned one.
    """
    if is_own(model.name):
        return replace(model, digest=pin_factory(Factory.parse(str(model))).digest)
    model.check()
    return model


@dataclass(frozen=True)
class Factory:
    """A function in a module, pinned once `digest` is set. `noun` is what error messages call it."""

    module: str
    function: str
    digest: str = ""
    noun: str = "network"

    @classmethod
    def parse(cls, text: str, noun: str = "network") -> Factory:
        """Parse `package.module:factory` or `package.module:factory@digest`. Raises ValueError for any other text."""
        path, separator, digest = text.removeprefix(ESTIMATOR).partition("@")
        module, _, function = path.partition(":")
        if not (
            all(part.isidentifier() for part in (*module.split("."), function)) and bool(separator) == bool(digest)
        ):
            form = "package.module:train" if noun == TRAINING else "package.module:factory"
            own = "your own training" if noun == TRAINING else "your own model"
            raise ValueError(f"{noun} is {text!r}; write {own} as {form}")
        return cls(module, function, digest, noun)

    def __str__(self) -> str:
        return f"{self.module}:{self.function}" + (f"@{self.digest}" if self.digest else "")


def pin_factory(factory: Factory) -> Factory:
    """Return the factory with the digest of its source. Raises ValueError if it differs from a given digest."""
    return replace(factory, digest=check_digest(factory, source_files(factory)))


def check_digest(factory: Factory, files: Mapping[str, SourceFile]) -> str:
    """Return the digest of a factory's files. Raises ValueError if it differs from a given digest."""
    digest = digest_of_files(files.values())
    if factory.digest and digest_in_keys(factory.digest) != digest_in_keys(digest):
        file_names = sorted(files)[:NAMED]
        more = ""
        if len(files) > len(file_names):
            more = f" and {len(files) - len(file_names)} more"
        raise ValueError(
            f"{factory.noun} {factory.module}:{factory.function} is not the one that was pinned: its source has digest "
            f"{digest}, not {factory.digest}; its files are {', '.join(file_names)}{more}"
        )
    return digest


def source_digest(factory: Factory) -> str:
    """Return the digest of the files that a factory's module may execute (see `source_files`)."""
    return digest_of_files(source_files(factory).values())


def source_files(factory: Factory) -> dict[str, SourceFile]:
    """Return the user's files that a factory's module may execute, by their names relative to the import path.

    Raises ValueError if the module does not exist, or if an import cannot be determined without running it.
    """
    try:
        files = find_files(factory.module)
    except ValueError as error:
        raise ValueError(f"{factory.noun} {factory}: {error}") from None
    if files is None:
        remedy = "install its package or put its folder on PYTHONPATH"
        if factory.module.endswith(".py"):
            module = factory.module.removesuffix(".py")
            remedy = f"name the module, {module}:{factory.function}, and put its folder on PYTHONPATH"
        raise ValueError(f"{factory.noun} {factory}: there is no module {factory.module!r} on Python's path; {remedy}")
    return files


def sources(factory: Factory) -> dict[str, Path]:
    """Return the paths of a factory's files, by their names relative to the import path.

    Raises the same errors as `source_files`.
    """
    return {name: file.path for name, file in source_files(factory).items()}
