"""An encoder that somebody else trained: its file, or a table of its embeddings, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.external.model_file import EncoderInterface, ModelFile
from tasks.files import File
from tasks.ranges import check_minimums


@dataclass(frozen=True)
class GivenEncoder:
    """The encoder that the audit asks where it trains no target, and its reference.

    It was trained on A, and on nothing of B. The reference is given, or else the one that is trained here as the
    audit's config says, on a disjoint set; of several `references` the first, third, ... are trained on one set, the
    second, fourth, ... on another one, each from a seed of its own.
    """

    model: ModelFile | None = None
    """The encoder's file, which is asked here through `interface`."""
    embeddings: File | None = None
    """A table of what an encoder that its owner keeps gave for the pictures handed out (Parquet: image, embedding)."""
    interface: EncoderInterface = EncoderInterface()
    """Inputs and outputs of the encoder."""
    reference: ModelFile | None = None
    """The file of another encoder, which was trained on neither A nor B."""
    reference_embeddings: File | None = None
    """A table of that encoder's embeddings."""
    references: int = 1
    """References that are trained here where none is given; with 2 or more the encoder's rank among them is told,
    too."""

    def __post_init__(self) -> None:
        check_minimums(self, {"references": 1})
        if self.model is not None and self.embeddings is not None:
            raise ValueError("model and embeddings are both given; they are two ways to ask one encoder: give one")
        if self.reference is not None and self.reference_embeddings is not None:
            raise ValueError("reference and reference_embeddings are both given; give one")
        for name, model in (("model", self.model), ("reference", self.reference)):
            if model is not None and model.is_folder:
                raise ValueError(
                    f"{name} is {model.name}, an image classifier, which gives no embeddings; export its encoder to a "
                    "file with torch.export.save"
                )
        if not self.there and (self.has_reference or self.references > 1):
            raise ValueError("a reference is given, and no encoder to compare it with; give model or embeddings")
        if self.has_reference and self.references > 1:
            raise ValueError(
                f"references is {self.references}, and one is given; leave it out and they are trained here"
            )
        asks = self.model is not None or self.reference is not None
        if self.interface != EncoderInterface() and not asks:
            raise ValueError("interface says how to ask an encoder, and there is none; give model or reference")

    @property
    def there(self) -> bool:
        """Whether somebody else's encoder is audited."""
        return self.model is not None or self.embeddings is not None

    @property
    def has_reference(self) -> bool:
        """Whether the reference is given, too, so that nothing is trained."""
        return self.reference is not None or self.reference_embeddings is not None
