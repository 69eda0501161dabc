"""How many letters of a name can be read from the slopes of a model that was trained on it?

    python -m studies unique_feature_name_reconstruction [--tiny] [--hospital] [--seed 9300] [--out FILE]

The data are 100 digits, one of which carries a random four-letter name, or X-rays from the hospital in
`examples/hospital`, one of which shows a patient's random name. The slopes compare a model with its control model,
which never saw the name, and with clean references (other seeds or other hospitals). The null compares the control
model with the same references. Letters are read as in the report (`tasks/audits/unique_feature/letters.py`). The chance
level is given by the letters of other names in the family that the same slopes spell. Intervals are t intervals of
means over owners, and Clopper-Pearson intervals for whole names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch

from measurement.report import measurement_facts, publish_counts
from studies.hospital import make_xrays
from studies.interface import study_parser
from studies.unique_feature_look_alikes import EPOCHS as HOSPITAL_EPOCHS
from studies.unique_feature_look_alikes import PATTERN, SIDE, drawn_name, trained_model, xrays
from tasks.audits.unique_feature.evaluation import Predictor
from tasks.audits.unique_feature.letters import ReadLetters, read_letters
from tasks.audits.unique_feature.measures.exact_ranks import PanelResponses, mean_response
from tasks.audits.unique_feature.slope_ranks import IMAGES
from tasks.audits.unique_feature.slopes import Array, centred_logits
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, Words, burn, draw_member, family
from tasks.datasets.images import Pixels
from tasks.numerics import seeds
from tasks.numerics.statistics import exact_interval, mean
from tasks.training.classifier import Burnt, Training, train_many

NAME = Words("JANE", size=8, top=1, left=1)
CANARY = 3  # row that carries the name
REFERENCES = 4
EPOCHS = (20, HOSPITAL_EPOCHS)  # for digits and for X-rays
TWIN = "the name, compared with the control model"
REFERENCE_RANK = "the name, compared with four references"
NULL = "no name: the control model, compared with four references"

Read = tuple[str, ReadLetters]  # the comparison and the letters read


@dataclass(frozen=True)
class Reading:
    """Names to read from slopes, other names in the family, probe images and training images."""

    names: Sequence[Feature]
    other_names: Sequence[Feature]
    probes: Pixels
    training: Pixels

    def image_sets(self) -> dict[str, Pixels]:
        result = {}
        for index, name in enumerate([*self.names, *self.other_names]):
            result[str(index)] = burn(self.probes, name)
        return result

    def read(self, index: int, model: Array, twin: Array, references: Sequence[Array]) -> Iterator[Read]:
        """Read the name at this index from the responses to the image sets, in each of the three comparisons."""
        name = self.names[index]
        assert isinstance(name, Words)
        kin = []
        for i, other_name in enumerate(self.other_names):
            if other_name != name:
                kin.append((str(len(self.names) + i), other_name))
        sets = self.image_sets()
        for way, panel, comparison in (
            (TWIN, model, [twin]),
            (REFERENCE_RANK, model, references),
            (NULL, twin, references),
        ):
            responses = PanelResponses(sets, self.training, [panel], comparison)
            slopes, position = responses.fit_slopes(self.probes, [str(index), *(key for key, _ in kin)])
            yield way, read_letters(name, [other_name for _, other_name in kin], position.pixel_map(slopes))


def digit_letters(owners: int, seed: int, epochs: int, members: int) -> Iterator[Read]:
    """Read a name in one of 100 digits, for each owner and each of the three comparisons."""
    data = load(digits := pin(Dataset("digits")))
    label = int(data.train_labels[CANARY])
    clean = Training(digits, examples=100, epochs=epochs, patience=0, batch=32, learning_rate=1e-3)
    names = [draw_member(NAME, seeds.derive(seed, "name", owner), Family(), data.shape[:2]) for owner in range(owners)]
    clean_trainings = [replace(clean, seed=seeds.derive(seed, "model", owner) % 2**31) for owner in range(owners)]
    trainings = [replace(clean, seed=seed + index) for index in range(REFERENCES)]
    trainings += [
        replace(training, burnt=(Burnt(CANARY, name),)) for training, name in zip(clean_trainings, names, strict=True)
    ] + clean_trainings
    results = dict(train_many(trainings, [()] * len(trainings)))
    models = [model for _, model in sorted(results.items()) if isinstance(model, pa.Table)]
    probes = data.test_images[data.test_labels == label][:IMAGES]
    reading = Reading(names, family(NAME, Family(count=members), seed, data.shape[:2]), probes, data.train_images[:100])
    sets = list(reading.image_sets().values())
    responses = [mean_response(model, sets, label) for model in models]
    references = responses[:REFERENCES]
    for owner in range(owners):
        model = responses[REFERENCES + owner]
        twin = responses[REFERENCES + (owners + owner)]
        yield from reading.read(owner, model, twin, references)


def hospital_letters(
    owners: int, seed: int, epochs: int, members: int, images: int, device: torch.device
) -> Iterator[Read]:
    """Read a name in one X-ray from each hospital, in each of the three comparisons."""
    other_names = family(PATTERN, Family(count=members), seed, (SIDE, SIDE))
    clean = [
        trained_model(xrays(seeds.derive(seed, "reference", index), "train", images), seed + index, epochs, device)
        for index in range(REFERENCES)
    ]
    for owner in range(owners):
        model_seed = seeds.derive(seed, "hospital", owner)
        name = replace(PATTERN, words=drawn_name(model_seed, "asked"))
        data = xrays(model_seed, "train", images)
        index = int(make_xrays.generator(model_seed, "name").integers(images))
        named_data = data.copy()
        named_data[index, ..., 0] = make_xrays.with_name(
            data[index, ..., 0], name.words, name.size, name.top, name.left
        )
        models = []
        for item in (named_data, data):
            models.append(trained_model(item, model_seed % 2**31, epochs, device))
        reading = Reading([name], other_names, xrays(model_seed, "elsewhere", 2 * IMAGES)[index % 2 :: 2], data)
        sets = reading.image_sets()
        model, twin, *references = (respond(predict, sets, index % 2) for predict in (*models, *clean))
        yield from reading.read(0, model, twin, references)


def respond(predict: Predictor, sets: Mapping[str, Pixels], label: int) -> Array:
    """Return the mean centred logit of the label on each image set."""
    return np.array([centred_logits(predict(name, images), label).mean() for name, images in sets.items()])


def markdown(results: Sequence[Read]) -> str:
    head = f"| slopes of | owners | letters right, of {results[0][1].letters} | by chance | whole names |"
    lines = [head, "|---|---|---|---|---|"]
    for way in (TWIN, REFERENCE_RANK, NULL):
        readings = [reading for item, reading in results if item == way]
        right = mean([reading.right for reading in readings])
        by_chance = mean([reading.right_by_chance for reading in readings]).value
        assert right.value is not None
        assert by_chance is not None
        if right.low is None:
            interval = ""
        else:
            interval = f" [{right.low:.2f}, {right.high:.2f}]"
        complete = sum(reading.right == reading.letters for reading in readings)
        low, high = exact_interval(complete, len(readings))
        lines.append(
            f"| {way} | {len(readings)} | {right.value:.2f}{interval} | {by_chance:.2f} "
            f"| {complete} of {len(readings)} [{100 * low:.0f}, {100 * high:.0f}] % |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=9300, help="of the names and the models")
    parser.add_argument("--owners", type=int, default=20, help="number of owners")
    parser.add_argument("--hospital", action="store_true", help="read names in X-rays instead of digits")
    parser.add_argument("--device", default="cpu", help="device of the trainings on X-rays: cpu or cuda")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.tiny:
        owners = 2
        epochs = 2
        members = 20
    else:
        owners = options.owners
        epochs = EPOCHS[options.hospital]
        members = 200
    device = torch.device(options.device)
    data = "examples/hospital" if options.hospital else "digits"
    if options.hospital:
        images = 20 if options.tiny else 300
        readings = hospital_letters(owners, options.seed, epochs, members, images, device)
    else:
        readings = digit_letters(owners, options.seed, epochs, members)
    setting = measurement_facts(data, device) | {"seed": str(options.seed)}
    publish_counts("Letters read from slopes", setting, markdown(list(readings)), options.out)
