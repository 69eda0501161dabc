"""How many letters of a name are read out of a model's slopes, where its training data show the name and where not.

    python bench/read_letters.py [--tiny] [--seed 9300] [--out bench/results/read-letters.md]

100 digits, of which one carries a drawn name of four letters. Its model's slopes are taken with its twin, which never
saw the name, and beside clean references of other seeds; the twin's, beside the same references, are the null. The
letters are read as the report reads them (`tasks/audits/unique_feature/letters.py`). By chance: how many letters of the
other names of the family the same slopes spell. Intervals: of means t over owners, of whole names Clopper-Pearson.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
import torch

from bench.demonstrations import clopper_pearson
from bench.measuring import here, parser, publish_counts
from tasks.audits.unique_feature.letters import ReadLetters, read_letters
from tasks.audits.unique_feature.measures.exact_ranks import PanelResponses, mean_response
from tasks.audits.unique_feature.slope_ranks import IMAGES
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Words, burn, draw_member, family
from tasks.numerics import seeds
from tasks.numerics.statistics import mean
from tasks.training.classifier import Burnt, Training, train_many

NAME = Words("JANE", size=8, top=1, left=1)
CANARY = 3  # the row that carries the name
REFERENCES = 4
TWIN, BESIDE, NULL = (
    "the name, with the twin",
    "the name, beside four references",
    "no name: the twin, beside four references",
)


def owner_letters(owners: int, seed: int, epochs: int, members: int) -> Iterator[tuple[str, ReadLetters]]:
    """What is read of each owner's name, in each of the three ways."""
    data = load(digits := pin(Dataset("digits")))
    label = int(data.train_labels[CANARY])
    clean = Training(digits, examples=100, epochs=epochs, patience=0, batch=32, learning_rate=1e-3)
    names = [draw_member(NAME, seeds.derive(seed, "name", owner), Family(), data.shape[:2]) for owner in range(owners)]
    own = [replace(clean, seed=seeds.derive(seed, "model", owner) % 2**31) for owner in range(owners)]
    trainings = [replace(clean, seed=seed + at) for at in range(REFERENCES)]
    trainings += [replace(of, burnt=(Burnt(CANARY, name),)) for of, name in zip(own, names, strict=True)] + own
    found = dict(train_many(trainings, [()] * len(trainings)))
    models = [model for _, model in sorted(found.items()) if isinstance(model, pa.Table)]
    others = family(NAME, Family(count=members), seed, data.shape[:2])
    probes = data.test_images[data.test_labels == label][:IMAGES]
    sets = {str(at): burn(probes, name) for at, name in enumerate([*names, *others])}
    responses = [mean_response(model, list(sets.values()), label) for model in models]
    references = responses[:REFERENCES]
    for owner, name in enumerate(names):
        assert isinstance(name, Words)
        with_name, twin = (responses[REFERENCES + at] for at in (owner, owners + owner))
        kin = [(str(owners + at), other) for at, other in enumerate(others) if other != name]
        for way, panel, beside in (
            (TWIN, with_name, [twin]),
            (BESIDE, with_name, references),
            (NULL, twin, references),
        ):
            asked = PanelResponses(sets, data.train_images[:100], [panel], beside)
            slopes, place = asked.fit_slopes(probes, [str(owner), *(key for key, _ in kin)])
            yield way, read_letters(name, [other for _, other in kin], place.pixel_map(slopes))


def markdown(found: Sequence[tuple[str, ReadLetters]]) -> str:
    lines = ["| what is asked | owners | letters right, of 4 | by chance | whole names |", "|---|---|---|---|---|"]
    for way in (TWIN, BESIDE, NULL):
        read = [of for each, of in found if each == way]
        right = mean([of.right for of in read])
        by_chance = mean([of.right_by_chance for of in read]).value
        assert right.value is not None
        assert by_chance is not None
        interval = "" if right.low is None else f" [{right.low:.2f}, {right.high:.2f}]"
        whole = sum(of.right == of.letters for of in read)
        low, high = clopper_pearson(whole, len(read))
        lines.append(
            f"| {way} | {len(read)} | {right.value:.2f}{interval} | {by_chance:.2f} "
            f"| {whole} of {len(read)} [{100 * low:.0f}, {100 * high:.0f}] % |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    given = parser(__doc__)
    given.add_argument("--seed", type=int, default=9300, help="of the names and the models")
    given.add_argument("--owners", type=int, default=20, help="how many")
    asked_for = given.parse_args()
    torch.set_num_threads(1)
    owners, epochs, members = (2, 2, 20) if asked_for.tiny else (asked_for.owners, 20, 200)
    setting = here("digits", torch.device("cpu")) | {"seed": str(asked_for.seed)}
    counted = markdown(list(owner_letters(owners, asked_for.seed, epochs, members)))
    publish_counts("Letters that are read out of slopes", setting, counted, asked_for.out)
