"""How often is a model accused of a feature if its training data contain it, a look-alike, or none?

    python -m studies unique_feature_look_alikes [--tiny] [--seed 9000] [--out FILE]

For names, the study uses the hospital in `examples/hospital`, with one X-ray set, name and network per seed. One
training image shows the audited name, a name with the same first name, a name with the same surname, an unrelated name,
or none. The model is audited alone. For glyphs (`--glyphs`), it uses 100 digits, one of which carries the random
audited glyph, a glyph that differs in one half, an unrelated glyph, or none. The model is compared with clean
references. Names and glyphs are random, so ranks are exact. The audit's scores and rules judge every model before
(without look-alikes) and after (with look-alikes). Intervals are Clopper-Pearson intervals.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.hospital import make_xrays, train_model
from studies.interface import study_parser
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import Predictor
from tasks.audits.unique_feature.given_models import Given, ModelFiles
from tasks.audits.unique_feature.measures.exact_ranks import PanelResponses, mean_response
from tasks.audits.unique_feature.measures.family import single_family_rows
from tasks.audits.unique_feature.population import (
    LEVEL,
    Relatives,
    family_from_rows,
    family_rows,
    look_alike_image_sets,
    relatives,
)
from tasks.audits.unique_feature.scores import log_probabilities
from tasks.audits.unique_feature.single_models.look_alikes import look_alike_answers, rank_rows
from tasks.audits.unique_feature.single_models.sentences import PARTLY
from tasks.audits.unique_feature.slope_ranks import IMAGES, rank_glyph_parts, slope_sets
from tasks.audits.unique_feature.slope_ranks import rank_rows as slope_rank_rows
from tasks.contract.schemas import SUMMARY
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily, Family, Feature, Glyph, Picture, Words, draw_member, look_alikes
from tasks.datasets.images import Pixels
from tasks.external.model_file import ModelFile
from tasks.numerics import seeds
from tasks.numerics.statistics import exact_interval
from tasks.training.classifier import Burnt, Training, train_many
from tasks.worker.files import File
from tasks.worker.files import pin as pin_file

CPU = torch.device("cpu")
SIDE = 64  # pixel width of an X-ray
PATTERN = Words("JANE DOE", size=10)
CASES = ("the name itself", "the same first name", "the same surname", "an unrelated name", "no name")
# As in train_model.py.
EPOCHS = 60
BATCH = 16
RATE = 3e-4
ANSWERS = ("memorised", PARTLY, "undecided", "not detected")


@dataclass(frozen=True)
class Size:
    """The number of owners, the size of their data and the number of features compared."""

    owners: int
    images: int
    probes: int
    epochs: int
    family: AskedFamily


FULL = Size(owners=20, images=300, probes=20, epochs=EPOCHS, family=AskedFamily(look_alikes=100))
TINY = Size(owners=1, images=20, probes=4, epochs=2, family=AskedFamily(count=19, look_alikes=19))


@dataclass(frozen=True)
class Answered:
    """The answers about a model in this case, without and with look-alikes."""

    case: str
    before: str
    after: str


def drawn_name(seed: int, *path: str | int) -> str:
    member = draw_member(PATTERN, seeds.derive(seed, *path), Family(), (SIDE, SIDE))
    assert isinstance(member, Words)
    return member.words


def shown_names(seed: int, asked_name: str) -> Mapping[str, str]:
    """Return the name shown in the training data in each case. It is empty in the last case."""
    first, last = asked_name.split()
    draws = (drawn_name(seed, "shown", number) for number in range(1000))
    other_first, other_last = next(name.split() for name in draws if not {first, last} & set(name.split()))
    names = (asked_name, f"{first} {other_last}", f"{other_first} {last}", f"{other_first} {other_last}", "")
    return dict(zip(CASES, names, strict=True))


def xrays(seed: int, split: str, count: int) -> Pixels:
    """Draw X-rays of clear and opaque lungs in turn with make_xrays.py: (n, h, w, 1)."""
    if split == "elsewhere":
        machine = make_xrays.ELSEWHERE
    else:
        machine = make_xrays.HERE
    images = []
    for index in range(count):
        images.append(make_xrays.chest(make_xrays.generator(seed, split, index), SIDE, bool(index % 2), machine))
    return np.stack(images)[..., None]


def trained_model(images: Pixels, seed: int, epochs: int, device: torch.device = CPU) -> Predictor:
    torch.manual_seed(seed)
    model = train_model.network((1, SIDE, SIDE), 2).to(device)
    data = as_tensor(images).to(device)
    labels = (torch.arange(len(images)) % 2).to(device)
    # As in train_model.py, but with a fused optimiser, which is five times as fast.
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(BATCH):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(data[rows]), labels[rows]).backward()
            optimiser.step()

    @torch.no_grad()
    def predict(_: str, pixels: Pixels) -> NDArray[np.float64]:
        return log_probabilities(model(as_tensor(pixels).to(device)).cpu().numpy())

    return predict


def as_tensor(images: Pixels) -> torch.Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255


def hospital_answers(size: Size, seed: int) -> Iterator[Answered]:
    """Yield the answers about one name for the models of one hospital."""
    asked_name = drawn_name(seed, "asked")
    given_models = Given(shape=(SIDE, SIDE, 1), source=ModelFiles((ModelFile("model.pt"),)), family=size.family)
    config = UniqueFeature(given_models, feature=replace(PATTERN, words=asked_name), seed=seed)
    data = xrays(seed, "train", size.images)
    clean = xrays(seed, "elsewhere", size.probes)
    index = int(make_xrays.generator(seed, "name").integers(size.images))
    models = []
    for number, name in enumerate(shown_names(seed, asked_name).values()):
        images = data.copy()
        if name:
            images[index, ..., 0] = make_xrays.with_name(
                data[index, ..., 0], name, PATTERN.size, PATTERN.top, PATTERN.left
            )
        models.append(trained_model(images, seeds.derive(seed, "model", number) % 2**31, size.epochs))
    yield from map(Answered, CASES, *zip(*panel_answers(config, clean, models), strict=True))


def panel_answers(config: UniqueFeature, clean: Pixels, models: Sequence[Predictor]) -> Iterator[tuple[str, str]]:
    """Yield the audit's answer about each model, without and with look-alikes."""
    relatives_asked = relatives(config, config.asked_feature)
    about = {"canary": None, "label": None, "seed": 0, "model": "given"}
    families = [family_from_rows(about, rows) for rows in family_rows(relatives_asked, clean, models)]
    rows_by_model: list[list[dict[str, object]]] = [[] for _ in models]
    for part, number, name, images in look_alike_image_sets(clean, relatives_asked):
        for rows, predict in zip(rows_by_model, models, strict=True):
            answers = look_alike_answers(predict(name, images))
            rows.append({"model": 0, "part": part, "look_alike": number, **answers})
    for family, rows in zip(families, rows_by_model, strict=True):
        alone = list(single_family_rows([family]))
        before = summary_answer(config, alone)
        after = summary_answer(config, [*alone, *rank_rows([family], rows)])
        yield ("memorised" if before == PARTLY else before), after  # the earlier answer, which used no look-alikes


def summary_answer(config: UniqueFeature, rows: Sequence[Mapping[str, object]]) -> str:
    """Return the audit's answer from these summary rows."""
    complete_rows = [dict.fromkeys(SUMMARY.names) | dict(row) for row in rows]
    return verdict(config, pa.Table.from_pylist(complete_rows, SUMMARY)).answer


# Glyphs


CANARY = 3  # row that carries the glyph
REFERENCES = 4
GLYPH_CASES = ("the glyph itself", "one that differs in one half", "an unrelated glyph", "none")


def glyph_answers(size: Size, seed: int) -> Iterator[Answered]:
    """Yield the answers about one glyph for each owner's models, compared with shared clean models."""
    digits = pin(Dataset("digits"))
    data = load(digits)
    clean = Training(digits, examples=100, epochs=20, patience=0, batch=32, learning_rate=1e-3)
    label = int(data.train_labels[CANARY])
    glyphs = [draw_member(Glyph(), seeds.derive(seed, "glyph", owner)) for owner in range(size.owners)]
    trainings = [replace(clean, seed=seed + index) for index in range(REFERENCES)]
    with tempfile.TemporaryDirectory() as folder:
        for owner, glyph in enumerate(glyphs):
            for case, feature in enumerate(shown_glyphs(Path(folder), glyph, seeds.derive(seed, "shown", owner))):
                burnt = (Burnt(CANARY, feature),) if feature is not None else ()
                trainings.append(replace(clean, seed=seeds.derive(seed, "model", owner, case) % 2**31, burnt=burnt))
        results = dict(train_many(trainings, [()] * len(trainings)))
    probes = data.test_images[data.test_labels == label][:IMAGES]
    relatives_asked = Relatives(digits, "test", 0, Glyph(), size.family, seed)
    sets = dict(slope_sets(relatives_asked, probes))  # glyphs drawn independently of the audited one
    models = [model for _, model in sorted(results.items()) if isinstance(model, pa.Table)]
    responses = [mean_response(model, list(sets.values()), label) for model in models]
    references = responses[:REFERENCES]
    owned = iter(responses[REFERENCES:])
    for glyph in glyphs:
        for case_name in GLYPH_CASES:
            slopes, here = PanelResponses(sets, data.train_images, [next(owned)], references).fit_slopes(
                probes, list(sets)
            )
            ranks, *_ = slope_rank_rows(replace(relatives_asked, feature=glyph), True, slopes, here)
            assert isinstance(glyph, Glyph)
            parts = list(rank_glyph_parts(glyph, here.pixel_map(slopes)))
            is_small = ranks["p_value"] <= LEVEL
            is_distinguishable = bool(parts) and all(row["p_value"] <= LEVEL for row in parts)
            if not is_small:
                yield Answered(case_name, "undecided", "undecided")
            else:
                yield Answered(case_name, "memorised", "memorised" if is_distinguishable else PARTLY)


def shown_glyphs(folder: Path, glyph: Feature, seed: int) -> tuple[Feature | None, ...]:
    """Return the feature of the canary in each case."""
    from PIL import Image

    halves = look_alikes(glyph, AskedFamily(look_alikes=1), seed, (28, 28))
    patch = halves[seed % len(halves)][0]
    file = folder / f"{seed}.png"
    Image.fromarray(patch.colour[..., 0]).save(file)
    like = Picture(pin_file(File(str(file))), top=patch.top, left=patch.left)
    return glyph, like, draw_member(Glyph(), seed), None


def table(results: Sequence[Answered]) -> str:
    """Render the answers by case, and the fractions of *memorised* before and after, with exact intervals."""
    lines = [
        f"| the training data show | models | before: memorised | {' | '.join(f'after: {item}' for item in ANSWERS)} |",
        f"|{'---|' * (3 + len(ANSWERS))}",
    ]
    for case in dict.fromkeys(item.case for item in results):
        here = [item for item in results if item.case == case]
        before = count(sum(item.before == "memorised" for item in here), len(here))
        after = []
        for answer in ANSWERS:
            after.append(count(sum(item.after == answer for item in here), len(here)))
        lines.append(f"| {case} | {len(here)} | {before} | {' | '.join(after)} |")
    return "\n".join(lines) + "\n"


def count(called_count: int, n: int) -> str:
    low, high = exact_interval(called_count, n)
    return f"{called_count} [{100 * low:.0f}, {100 * high:.0f}] %"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=9000, help="of the first owner; the others follow")
    parser.add_argument("--owners", type=int, help="number of owners; default: 20")
    parser.add_argument("--glyphs", action="store_true", help="audit glyphs with references instead of names")
    options = parser.parse_args(arguments)
    size = TINY if options.tiny else FULL
    size = replace(size, owners=options.owners or size.owners)
    torch.set_num_threads(1)
    setting = measurement_facts("examples/hospital", torch.device("cpu")) | {"seed": str(options.seed)}
    if options.glyphs:
        setting["data"] = "digits"
        counted = table(list(glyph_answers(size, options.seed)))
        publish_counts("Glyphs and look-alikes", setting, counted, options.out)
        return
    results: list[Answered] = []
    for seed in range(options.seed, options.seed + size.owners):
        results += hospital_answers(size, seed)
        print(f"{seed}: {', '.join(f'{item.before} / {item.after}' for item in results[-len(CASES) :])}", flush=True)
    publish_counts("Names and look-alikes", setting, table(results), options.out)
