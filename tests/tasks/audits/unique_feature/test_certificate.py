"""Certificates for synthetic evidence: sentences, number lines and next steps."""

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.unique_feature import AUDIT, UniqueFeature
from tasks.audits.unique_feature.answer import OBJECTIVES
from tasks.audits.unique_feature.answer import effect as effect_row
from tasks.audits.unique_feature.given_models import Given, ModelFiles, ReturnedOutputs
from tasks.audits.unique_feature.measures.family import PUSH
from tasks.audits.unique_feature.pairs import answer as pairs
from tasks.audits.unique_feature.pairs.bets import BETS
from tasks.audits.unique_feature.pairs.canary_scores import EFFECT
from tasks.audits.unique_feature.pairs.canary_verdicts import BEYOND, CALLED
from tasks.audits.unique_feature.pairs.evidence import SURELY, Bets, Calls, PairEvidence
from tasks.audits.unique_feature.pairs.plain_words import FACTOR
from tasks.audits.unique_feature.pairs.sentences import LIMITS
from tasks.audits.unique_feature.population import Population
from tasks.audits.unique_feature.questions import Panel
from tasks.audits.unique_feature.single_models import answer as single_models
from tasks.audits.unique_feature.single_models.evidence import PanelEvidence, Rank
from tasks.audits.unique_feature.single_models.plain_words import family_noun
from tasks.audits.unique_feature.single_models.sentences import PARTLY
from tasks.contract.certificate import Boundary, NumberLine
from tasks.contract.power import SMALLEST
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Row
from tasks.contract.ties import tied_row
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, NOT_ASSESSABLE
from tasks.datasets.features import Family, Glyph, Picture, Words
from tasks.external.model_file import ModelFile
from tasks.worker.files import File
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.made_up import CLEAR, configure, judge

GIVEN = UniqueFeature(Given((28, 28, 1)))
RETURNED_TABLE = UniqueFeature(Given((28, 28, 1), ReturnedOutputs((File("o.csv"),))))
FILES = UniqueFeature(Given((28, 28, 1), ModelFiles((ModelFile("m.pt"),))))
NULL = configure(burnt=Glyph(kind="random", seed=1))
EARLY_STOPPING = configure(canaries=12, drawn=True, stopping_level=0.05)


def effect(estimate: float, low: float | None, high: float | None) -> Row:
    row: Row = dict.fromkeys(SUMMARY.names) | {"metric": EFFECT[0], "setting": EFFECT[1], "n": 12}
    return row | {"estimate": estimate, "low": low, "high": high, "unit": "pair of trainings"}


BEYOND_CHANCE = {"estimate": 0.2, "low": 0.1, "high": 0.4, "p_value": 0.0002}
NAMES = (EFFECT, (CALLED, "{}"), (BEYOND, "{}"), (BETS, "{}"))
SILENT = Calls(0, 10, Population(201), share_seeds=False, excess=None, level=0.05)
OPEN = PairEvidence(NAMES, effect(0.02, -0.3, 0.34), SILENT, None, ())
LARGE = replace(OPEN, effect=effect(0.3, 0.2, 0.4))


def line(subject: str, value: float, *boundaries: Boundary, **fields: Any) -> NumberLine:
    return NumberLine(subject, value, boundaries=boundaries, **fields)


@pytest.mark.parametrize(
    ("config", "evidence", "expected"),
    [
        (
            UniqueFeature(),
            OPEN,
            line(
                FACTOR,
                math.exp(0.02),
                Boundary(
                    math.exp(SMALLEST), "smallest relevant increase; memorised if the whole interval lies above it"
                ),
                low=math.exp(-0.3),
                high=math.exp(0.34),
                null=1.0,
                null_words="no memory",
                logarithmic=True,
            ),
        ),
        (
            UniqueFeature(),
            replace(OPEN, calls=replace(SILENT, count=3, memorised=3)),
            line(
                "models, of 10, that can be distinguished from their comparison models",
                3.0,
                Boundary(1.0, "memorised if there is at least one"),
                null=0.0,
            ),
        ),
        (
            UniqueFeature(),
            replace(OPEN, calls=replace(SILENT, excess=BEYOND_CHANCE, largest=0.5)),
            line(
                "audits, of 1,000, in which chance alone would produce such a result",
                0.2,
                Boundary(1000 * SURELY, "memorised from here downwards"),
                null=1000.0,
                null_words="all of them",
                logarithmic=True,
            ),
        ),
        (
            EARLY_STOPPING,
            replace(OPEN, bets=Bets(53.0, 0.05, 3)),
            line(
                "growth of the evidence for memorisation (times its initial value)",
                53.0,
                Boundary(20.0, "limit fixed in advance; memorised from here upwards"),
                null=1.0,
                null_words="average growth if nothing is memorised",
                logarithmic=True,
            ),
        ),
        (EARLY_STOPPING, replace(OPEN, bets=Bets(2.0, 0.05, 3), effect=None), None),
        # Rows without canaries, or with ranks that share their seeds.
        (UniqueFeature(), PairEvidence(((CALLED, "{}"),), None, None, None, ()), None),
        (UniqueFeature(), PairEvidence(((BEYOND, "{}"),), None, None, None, ()), None),
        (
            UniqueFeature(),
            PairEvidence(((BEYOND, "{}"),), None, replace(SILENT, share_seeds=True, excess=BEYOND_CHANCE), None, ()),
            None,
        ),
    ],
)
def test_number_line_shows_deciding_evidence(
    config: UniqueFeature, evidence: PairEvidence, expected: NumberLine | None
) -> None:
    _verdict, page = judge(pairs.ANSWERING, config, evidence)
    assert page.findings[0].line == expected


def test_pairs_are_described_without_statistics(golden: Golden) -> None:
    def sentence_of(config: UniqueFeature, evidence: PairEvidence) -> str:
        return judge(pairs.ANSWERING, config, evidence)[1].findings[0].sentence

    golden(sentence_of(UniqueFeature(), OPEN), "open")
    golden(sentence_of(EARLY_STOPPING, replace(OPEN, bets=Bets(53.0, 0.05, 3), calls=None)), "drawn")
    golden(sentence_of(EARLY_STOPPING, replace(OPEN, bets=Bets(2.0, 0.05, 3))), "drawn and open")
    golden(sentence_of(UniqueFeature(), replace(OPEN, effect=None)), "no effect")
    small_ranks = replace(OPEN, calls=replace(SILENT, excess=BEYOND_CHANCE, largest=0.5))
    golden(sentence_of(UniqueFeature(), small_ranks), "many small ranks")
    many_ranks = replace(OPEN, calls=replace(SILENT, excess=BEYOND_CHANCE | {"p_value": 0.4}, largest=0.5))
    assert sentence_of(UniqueFeature(), many_ranks) == sentence_of(UniqueFeature(), OPEN)
    questions = [judge(pairs.ANSWERING, config, OPEN)[1].asked for config in (UniqueFeature(), EARLY_STOPPING)]
    golden(questions[0], "question")
    golden(questions[1], "question on drawn features")


@pytest.mark.parametrize(
    ("config", "answer", "evidence"),
    [
        (NULL, "memorised", LARGE),
        (UniqueFeature(), "memorised", LARGE),
        (UniqueFeature(), "not detected", replace(OPEN, effect=effect(0.0, -0.01, 0.01))),
        (UniqueFeature(), BELOW_RELEVANT_SIZE, replace(OPEN, effect=effect(0.02, 0.01, 0.03))),
        (UniqueFeature(), NOT_ASSESSABLE, replace(OPEN, tied=tied_row(0.5, 10, "canary"))),
        (configure(canaries=30), "undecided", OPEN),
        (configure(canaries=9), "undecided", OPEN),
        (
            configure(canaries=30, family=Family(count=700)),
            "undecided",
            replace(OPEN, calls=None),
        ),
        (
            configure(canaries=30),
            "undecided",
            replace(OPEN, calls=replace(SILENT, population=Population(4_457_400, True))),
        ),
    ],
)
def test_next_step_follows_from_answer_of_pairs(
    golden: Golden, config: UniqueFeature, answer: str, evidence: PairEvidence
) -> None:
    verdict, page = judge(pairs.ANSWERING, config, evidence)
    assert verdict.answer == answer
    golden(page.steps[0])


SMALL = replace(CLEAR, rank=Rank(3, 0.015, Population(201), 1))
APART = replace(SMALL, parts=(SMALL.rank,))
DOUBTED = replace(CLEAR, push=replace(CLEAR.push, upper=None))
TIED = replace(CLEAR, tied=tied_row(0.5, 1, "model"))


@pytest.mark.parametrize(
    ("answer", "evidence"),
    [
        (
            "memorised",
            APART,
        ),
        (
            "undecided",
            replace(DOUBTED, rank=Rank(1, 0.06, Population(1000), 2)),
        ),
        (
            PARTLY,
            replace(CLEAR, rank=Rank(2, 0.0009, Population(4000), 1, references=4)),
        ),
        (
            "not assessable",
            replace(TIED, rank=Rank(120, 0.6, Population(200), 1)),
        ),
        (
            "not detected",
            CLEAR,
        ),
    ],
)
def test_place_is_explained_without_statistics(golden: Golden, answer: str, evidence: PanelEvidence) -> None:
    (finding,) = judge(single_models.ANSWERING, GIVEN, evidence)[1].findings
    assert finding.answer == answer
    golden(finding.sentence)


def test_single_model_question_and_line_name_feature() -> None:
    features = (Words("JO"), Picture(File("mark.png")), Glyph())
    nouns = [family_noun(UniqueFeature(feature=feature)) for feature in features]
    assert nouns == ["names", "images", "signs"]
    pages = []
    for config in (GIVEN, UniqueFeature(Panel())):
        pages.append(judge(single_models.ANSWERING, config, SMALL)[1])
    assert [page.asked for page in pages] == [
        "Does the model reveal that its training data contained the letter A?",
        "Do models trained on these data reveal that the data contain the letter A?",
    ]
    assert pages[0].findings[0].line == line(
        "place of the letter A among 201 similar signs (1: the strongest response)",
        3,
        Boundary(10, "up to place 10: memorised, or partly memorised (this feature or one that shares a part with it)"),
        null=101.0,
        null_words="average place if nothing is memorised",
        usual=(11, 201),
        logarithmic=True,
    )


@pytest.mark.parametrize(
    ("config", "answer", "evidence", "count"),
    [
        (GIVEN, "memorised", APART, 2),
        (GIVEN, "not detected", CLEAR, 2),
        (GIVEN, PARTLY, SMALL, 2),
        (
            with_settings(GIVEN, {"family.look_alikes": 9}),
            PARTLY,
            SMALL,
            1,
        ),
        (GIVEN, "not assessable", TIED, 1),
        (RETURNED_TABLE, "not assessable", replace(CLEAR, unchecked=1), 1),
        (GIVEN, "undecided", DOUBTED, 2),
        (RETURNED_TABLE, "undecided", DOUBTED, 2),
        (GIVEN, "undecided", None, 2),
    ],
)
def test_next_step_follows_from_answer_of_models(
    golden: Golden, config: UniqueFeature, answer: str, evidence: PanelEvidence | None, count: int
) -> None:
    verdict, page = judge(single_models.ANSWERING, config, evidence)
    assert verdict.answer == answer
    assert len(page.steps) == count
    golden(page.steps[0])


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        (RETURNED_TABLE, "given.outputs=fold0.csv,fold1.csv,fold2.csv"),
        (FILES, "given.models=fold0.pt,fold1.pt,fold2.pt"),
        (UniqueFeature(Panel(seeds=2)), "seeds=6"),
    ],
)
def test_more_models_are_requested_in_the_same_form(config: UniqueFeature, setting: str) -> None:
    _verdict, page = judge(single_models.ANSWERING, config, DOUBTED)
    assert page.steps[0].endswith(f"(`{setting}`).")


def test_comparison_uses_effect_of_pairs_or_push() -> None:
    pair_effect = effect(0.02, -0.3, 0.34)
    push = effect(3.0, None, None) | {"metric": PUSH, "setting": "{}"}
    table = pa.Table.from_pylist([pair_effect, push], SUMMARY)
    assert (effect_row(UniqueFeature(), table) or {})["estimate"] == 0.02
    assert (effect_row(GIVEN, table) or {})["estimate"] == 3.0
    assert OBJECTIVES.allowance == 0.01  # of the accuracy


def test_empty_summary_is_undecided() -> None:
    page = AUDIT.certify("Is it?", GIVEN, SUMMARY.empty_table())
    assert page is not None
    assert [(finding.answer, finding.sentence, finding.line) for finding in page.findings] == [
        ("undecided", "Undecided: no model has been evaluated yet.", None)
    ]


def test_pairs_without_evidence_are_undecided() -> None:
    verdict, page = judge(pairs.ANSWERING, UniqueFeature(), None)
    assert verdict.sentence == page.findings[0].sentence == "Undecided: there are no measurements yet."
    assert verdict.limits == LIMITS


@pytest.mark.parametrize(("look", "states_later_bets"), [(1, False), (2, True)])
def test_later_bets_are_stated_from_the_second_look(look: int, states_later_bets: bool) -> None:
    _verdict, page = judge(pairs.ANSWERING, UniqueFeature(), replace(OPEN, look=look))
    assert ("this is a later look" in page.rule) == states_later_bets
    assert ("Later looks" in page.other_errors) == states_later_bets
