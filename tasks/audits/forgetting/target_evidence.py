"""Evidence on one target, from which the rules of `decision` choose its answer."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.audits.forgetting.held_share import LikenessCheck
from tasks.contract.summaries import Estimate, Row

MAX_PASSED = 0.05  # if more simulated owners pass than this share, no output table is cleared
LEVEL = 0.025  # significance level of the randomisation test, over all targets together


@dataclass(frozen=True)
class RecognitionTrial:
    """Simulated owners who hold a share of D_Q but submit a clean model's answers about it: how many pass as clean."""

    share: float
    passed: int
    tried: int


@dataclass(frozen=True)
class TargetEvidence:
    """Evidence on one target.

    `models` is the number of its models with answers. `p` is the p-value of the randomisation test, adjusted over the
    targets. `p_other` is the p-value of the other side, that the model is more certain about the control set. Both are
    None without a control set. `share` is None if it is unknown. `repeats` counts images that were sent twice, of which
    `disagreeing` received two answers. `recognition` is the trial for tables that nothing binds to a model, or None for
    other targets. `tied` is the summary row of equal confidences.
    """

    models: int
    p: float | None
    share: Estimate | None
    accuracy: LikenessCheck
    agreement: LikenessCheck
    negligible: float
    disagreeing: int = 0
    repeats: int = 0
    p_other: float | None = None
    recognition: RecognitionTrial | None = None
    tied: Row | None = None

    @property
    def failed_check(self) -> tuple[str, LikenessCheck] | None:
        """Name and result of the first likeness check that the target fails, or None if it passes all."""
        checks = {"accuracy": self.accuracy, "agreement": self.agreement}
        return next(((name, check) for name, check in checks.items() if check.is_alike is False), None)

    @property
    def upper_limit(self) -> float | None:
        """Largest share of D_Q that it may hold. None if too few models show how effects vary."""
        is_known = self.accuracy.is_alike is not None and self.agreement.is_alike is not None
        return self.share.high if is_known and self.share is not None else None

    @property
    def lower_limit(self) -> float:
        """Smallest share of D_Q whose models show this effect. 0 if it is unknown."""
        if self.share is None or self.share.low is None:
            return 0.0
        return self.share.low

    @property
    def is_clear(self) -> bool:
        """Whether the target holds at most a negligible share."""
        return self.upper_limit is not None and self.upper_limit <= self.negligible

    @property
    def could_be_made_up(self) -> bool:
        """Whether an owner who recognises the images of D_Q could have submitted this table."""
        trial = self.recognition
        return trial is not None and trial.passed > MAX_PASSED * trial.tried


def format_percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
