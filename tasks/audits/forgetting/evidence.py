"""Evidence of a summary: each target with its decision, and the results over all targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.audits.forgetting.audited import named_targets
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.decision import Decision, decide
from tasks.audits.forgetting.held_share import UNKNOWN, LikenessCheck
from tasks.audits.forgetting.measures.decisions import CHECKS, HELD, LESS, REPEATED, SURER, control_metric
from tasks.audits.forgetting.measures.query_confidences import HANDED_OUT
from tasks.audits.forgetting.measures.recognition import PASSED
from tasks.audits.forgetting.target_evidence import RecognitionTrial, TargetEvidence
from tasks.contract.summaries import Estimate, Row, Rows, first_row, numerator, read_setting, select_rows
from tasks.contract.ties import TIED
from tasks.contract.verdict import NOT_ASSESSABLE, Answer
from tasks.worker.files import shorten_names

ORDER: tuple[Answer, ...] = ("not forgotten", NOT_ASSESSABLE, "undecided", "forgotten")  # the first decides for all


@dataclass(frozen=True)
class JudgedTarget:
    """A target with its decision.

    `name` is the target's name in tables. `file` is the shortest unique name of a given file, or None for trained
    targets. `setting` is the setting of all summary rows of the target, and `share` the row of its share of D_Q.
    `has_test` states whether the test's rows exist. `triples` is the row of the published rule, or None.
    """

    name: str
    file: str | None
    setting: str
    share: Row
    decision: Decision
    has_test: bool
    triples: Row | None

    @property
    def answer(self) -> Answer:
        return self.decision.answer

    @property
    def evidence(self) -> TargetEvidence:
        return self.decision.evidence

    @property
    def quoted(self) -> str:
        """The target's name in a sentence."""
        return self.name if self.file is None else f"'{self.file}'"

    @property
    def row_names(self) -> list[tuple[str, str]]:
        """Names (metric, setting) of the deciding rows. For an accusation, the test comes first."""
        names = [(HELD, self.setting), *([(SURER, self.setting)] if self.has_test else [])]
        return names[::-1] if self.answer == "not forgotten" else names


@dataclass(frozen=True)
class Evidence:
    """Evidence on all targets.

    `powers` are the summary rows of the test's power, by ascending share. `right_count` and `wrong_count` are the
    numbers of right and wrong decisions on targets whose training is known, or None if there are none. `fit` is the
    lowest training accuracy. `keys` are the first digits of the SHA-256 of the keys that owners were promised. `images`
    is the number of images of D_Q, or None if no target was tested.
    """

    targets: tuple[JudgedTarget, ...]
    powers: tuple[tuple[float, Row], ...]
    known_count: int
    right_count: int | None
    wrong_count: int | None
    fit: float | None
    keys: tuple[str, ...]
    images: int | None = None

    @property
    def by_weight(self) -> list[JudgedTarget]:
        """The targets, gravest answer first."""
        return sorted(self.targets, key=lambda target: ORDER.index(target.answer))

    @property
    def answer(self) -> Answer:
        return self.by_weight[0].answer


def read_evidence(config: Forgetting, rows: Rows) -> Evidence:
    """Read the evidence from the rows of a summary."""
    targets = () if config.audited is None else named_targets(config.audited)
    given_names = [target.name for target in targets if target.source != "training"]
    files = dict(zip(given_names, shorten_names(given_names), strict=True))
    trial = next((_read_trial_row(row) for row in select_rows(rows, PASSED)), None)
    trials = {target.name: trial for target in targets if target.source == "outputs"}
    powers = [(read_setting(row)["share"], row) for row in select_rows(rows, "power")]
    right_count = rows.get(("targets decided rightly", "{}"))
    wrong_count = rows.get(("targets decided wrongly", "{}"))
    lowest_fit = rows.get(("lowest train accuracy", "{}"))
    return Evidence(
        targets=tuple(_read_target(config, rows, share, files, trials) for share in select_rows(rows, HELD)),
        powers=tuple(sorted(powers, key=lambda power: power[0])),
        known_count=0 if right_count is None else right_count["n"],
        right_count=None if right_count is None else numerator(right_count),
        wrong_count=None if wrong_count is None else numerator(wrong_count),
        fit=None if lowest_fit is None else lowest_fit["estimate"],
        keys=tuple(read_setting(row)["key"] for row in select_rows(rows, HANDED_OUT)),
        images=None if (tied := first_row(rows, TIED)) is None else tied["n"],
    )


def _read_trial_row(passed: Row) -> RecognitionTrial:
    return RecognitionTrial(read_setting(passed)["share"], numerator(passed), passed["n"])


def _read_target(
    config: Forgetting,
    rows: Rows,
    share: Row,
    files: Mapping[str, str],
    trials: Mapping[str, RecognitionTrial | None],
) -> JudgedTarget:
    """Read and judge the target of this share row."""
    name = str(read_setting(share)["target"])
    setting = share["setting"]
    return JudgedTarget(
        name=name,
        file=files.get(name),
        setting=setting,
        share=share,
        decision=decide(config, read_target_evidence(rows, setting, config.negligible, trials.get(name))),
        has_test=(SURER, setting) in rows,
        triples=rows.get(("published rule says forgotten", setting)),
    )


def read_target_evidence(
    rows: Rows, setting: str, negligible: float, trial: RecognitionTrial | None = None
) -> TargetEvidence:
    """Read one target's evidence from its rows, equal to what the table of decisions used."""
    share = rows[HELD, setting]
    if share["estimate"] is None:
        held_share = None
    else:
        held_share = Estimate(share["estimate"], share["low"], share["high"], share["n"])
    p = None
    if (SURER, setting) in rows:
        p = rows[SURER, setting]["p_value"]
    p_other = None
    if (LESS, setting) in rows:
        p_other = rows[LESS, setting]["p_value"]
    checks = (rows.get((control_metric(check), setting)) for check in CHECKS)
    accuracy, agreement = (
        UNKNOWN if row is None else LikenessCheck(row["estimate"], row["null"], row["p_value"]) for row in checks
    )
    repeated = rows.get((REPEATED, setting))
    if repeated is None:
        differing = 0
        repeats = 0
    else:
        differing = numerator(repeated)
        repeats = repeated["n"]
    tied = rows.get((TIED, setting))
    return TargetEvidence(
        share["n"], p, held_share, accuracy, agreement, negligible, differing, repeats, p_other, trial, tied
    )
