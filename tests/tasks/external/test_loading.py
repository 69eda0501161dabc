"""Files of each kind, as their makers write them, against the module itself in plain torch."""

import re
import sys
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from tasks.contract.extras import ONNXRUNTIME
from tasks.external import loading
from tasks.external.model_file import Interface, ModelFile, pin

SHAPE, CLASSES, ROWS = (8, 6, 3), 4, 21
SOURCE = """
from torch import nn

def net(shape, classes):
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(5 * (height - 2) * (width - 2), classes),
    )

def failing(shape, classes):
    raise RuntimeError("no such shape")

def none(shape, classes):
    return None
"""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit is deprecated; its files are not gone
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "given_net.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "given_net"
    sys.modules.pop("given_net", None)


def made(seed: int = 0, classes: int = CLASSES) -> nn.Module:
    """A module whose batch norm has seen something, so that evaluation differs from training."""
    scope: dict[str, Callable[..., nn.Module]] = {}
    exec(SOURCE, scope)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = scope["net"]((SHAPE[2], SHAPE[0], SHAPE[1]), classes)
        for _ in range(3):
            module(2 * torch.rand(16, SHAPE[2], SHAPE[0], SHAPE[1]) + 1)
    return module.eval()


def images(rows: int = ROWS) -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (rows, *SHAPE), np.uint8)


def inputs(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def expected(module: nn.Module, pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    with torch.no_grad():
        return module(inputs(pixels)).double().log_softmax(1).numpy()


def scripted(module: nn.Module, path: Path) -> None:
    torch.jit.script(module).save(str(path))


def traced(module: nn.Module, path: Path) -> None:
    torch.jit.trace(module, inputs(images(2))).save(str(path))


def exported(module: nn.Module, path: Path) -> None:
    torch.export.save(torch.export.export(module, (inputs(images(4)),)), path)


def exported_for(least: int, most: int) -> Callable[[nn.Module, Path], None]:
    def export(module: nn.Module, path: Path) -> None:
        rows = torch.export.Dim("rows", min=least, max=most)
        torch.export.save(torch.export.export(module, (inputs(images(4)),), dynamic_shapes=({0: rows},)), path)

    return export


def as_onnx(rows: int | str) -> Callable[[nn.Module, Path], None]:
    """Written operator by operator, as exporters of other frameworks do."""

    def export(module: nn.Module, path: Path) -> None:
        onnx = pytest.importorskip("onnx")
        from onnx import helper, numpy_helper

        tensors = {name.replace(".", "_"): value.numpy() for name, value in module.state_dict().items()}
        kept = [numpy_helper.from_array(value, name) for name, value in tensors.items() if value.ndim]
        nodes = [
            helper.make_node("Conv", ["x", "0_weight", "0_bias"], ["c"]),
            helper.make_node("BatchNormalization", ["c", *(f"1_{n}" for n in BATCH_NORM)], ["b"], epsilon=1e-5),
            helper.make_node("Relu", ["b"], ["r"]),
            helper.make_node("Flatten", ["r"], ["f"]),
            helper.make_node("Gemm", ["f", "5_weight", "5_bias"], ["y"], transB=1),
        ]
        kind = onnx.TensorProto.FLOAT
        x = helper.make_tensor_value_info("x", kind, [rows, SHAPE[2], SHAPE[0], SHAPE[1]])
        y = helper.make_tensor_value_info("y", kind, [rows, CLASSES])
        graph = helper.make_graph(nodes, "net", [x], [y], kept)
        whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(whole, path)

    return export


BATCH_NORM = ("weight", "bias", "running_mean", "running_var")
KINDS: dict[str, tuple[str, Callable[[nn.Module, Path], None]]] = {
    "scripted": ("m.pt", scripted),
    "traced": ("m.pt", traced),
    "exported for four rows": ("m.pt2", exported),
    "exported for 2 to 8 rows": ("m.pt2", exported_for(2, 8)),
    "onnx": ("m.onnx", as_onnx("rows")),
    "onnx for four rows": ("m.onnx", as_onnx(4)),
    "onnx by torch": (
        "m.onnx",
        lambda module, path: torch.onnx.export(module, (inputs(images(2)),), str(path), dynamo=False),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_says_what_the_module_says(kind: str, tmp_path: Path) -> None:
    name, save = KINDS[kind]
    module = made()
    save(module, tmp_path / name)
    model = pin(ModelFile(str(tmp_path / name)))
    found = loading.log_probabilities(model, images(), classes=CLASSES)
    assert ((ROWS, CLASSES), np.float64, 0) == (found.log_p.shape, found.log_p.dtype, found.floored)
    np.testing.assert_allclose(found.log_p, expected(module, images()), rtol=0, atol=1e-5)
    given = loading.load_model(model, SHAPE, Interface(batch=5), CLASSES)
    np.testing.assert_allclose(given.answers(images()).log_p, found.log_p, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(given.answers(images()[3:9]).log_p, given.answers(images()[3:9]).log_p)
    np.testing.assert_allclose(given.answers(images()[:1]).log_p, found.log_p[:1], rtol=0, atol=1e-5)


class FixedBatch(nn.Module):
    """A module that holds the number of images of its example."""

    def __init__(self, module: nn.Module, rows: int) -> None:
        super().__init__()
        self.module, self.rows = module, rows

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x).reshape(self.rows, -1)[:, :CLASSES] + torch.zeros(self.rows, 1)


@pytest.mark.parametrize("rows", [1, 3, 8, 50])
@pytest.mark.parametrize("kind", ["m.pt", "m.onnx"])
def test_a_batch_size_that_was_built_in_is_found(kind: str, rows: int, tmp_path: Path) -> None:
    module, example = made(), inputs(images(rows))
    fixed = FixedBatch(module, rows).eval()
    if kind == "m.pt":
        torch.jit.trace(fixed, example).save(str(tmp_path / kind))
    else:
        pytest.importorskip("onnx")
        torch.onnx.export(
            fixed, (example,), str(tmp_path / kind), dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "rows"}}
        )
    found = loading.log_probabilities(pin(ModelFile(str(tmp_path / kind))), images(), classes=CLASSES)
    np.testing.assert_allclose(found.log_p, expected(module, images()), rtol=0, atol=1e-5)


def test_a_batch_size_that_is_not_found_is_one_line(tmp_path: Path) -> None:
    torch.jit.trace(FixedBatch(made(), 13).eval(), inputs(images(13))).save(str(tmp_path / "m.pt"))
    for shape in ((8, 6, 3), (9, 6, 3)):
        ask = partial(loading.load_model, ModelFile(str(tmp_path / "m.pt")), shape)
        if shape == SHAPE:
            assert ask(Interface(batch=13)).rows == 13
        else:
            with pytest.raises(
                ValueError, match=r"it also fails on batches of .*: set interface\.batch if it requires another"
            ) as refused:
                ask()
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize("form", ["w.pt", "w.npz", "w.safetensors", "checkpoint.pth", "lightning.ckpt", "nested.pt"])
def test_weights_and_a_factory_say_what_the_module_says(form: str, factory: str, tmp_path: Path) -> None:
    module = made()
    path = tmp_path / form
    if form == "w.npz":
        np.savez(path, **{name: value.numpy() for name, value in module.state_dict().items()})
    elif form == "w.safetensors":
        save_file(module.state_dict(), path)
    elif form == "lightning.ckpt":
        torch.save(lightning_checkpoint({f"model.{name}": value for name, value in module.state_dict().items()}), path)
    elif form == "nested.pt":
        torch.save({f"module.net.{name}": value for name, value in module.state_dict().items()}, path)
    else:
        state = module.state_dict()
        torch.save({"state_dict": state, "epoch": 3} if form == "checkpoint.pth" else state, path)
    model = pin(ModelFile(f"{factory}:net+{path}"))
    found = loading.log_probabilities(model, images(), classes=CLASSES)
    np.testing.assert_allclose(found.log_p, expected(module, images()), rtol=0, atol=1e-5)


def lightning_checkpoint(state: dict[str, Tensor]) -> dict[str, object]:
    """What Lightning 2's trainer writes, with the state of an optimiser and of a callback."""
    callback = {"monitor": "loss", "best_model_score": torch.tensor(0.5), "best_k_models": {}, "dirpath": "/runs"}
    optimiser = torch.optim.Adam([nn.Parameter(torch.zeros(3))]).state_dict()
    return {
        "epoch": 3,
        "global_step": 120,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": OrderedDict(state),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 4}}}},
        "callbacks": {"ModelCheckpoint{'monitor': 'loss'}": callback},
        "optimizer_states": [optimiser],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 0.001, "layers": [5]},
    }


@pytest.mark.parametrize(
    ("renamed", "told"),
    [
        (lambda name: name if name.startswith("5") else f"model.{name}", "Missing key"),  # no beginning of all
        (lambda name: f"model.x{name}", "Missing key"),  # without it they are not the factory's
    ],
)
def test_a_beginning_is_left_out_only_where_the_rest_is_the_factorys(
    renamed: Callable[[str], str], told: str, factory: str, tmp_path: Path
) -> None:
    torch.save({renamed(name): value for name, value in made().state_dict().items()}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=f"the weights do not fit the factory's network: .*{told}"):
        loading.log_probabilities(ModelFile(f"{factory}:net+{tmp_path / 'w.pt'}"), images(), classes=CLASSES)


def test_weights_that_are_not_the_factorys_are_refused(factory: str, tmp_path: Path) -> None:
    torch.save(made(classes=7).state_dict(), tmp_path / "w.pt")
    for function, told in (
        ("net", "the weights do not fit the factory's network: .*size mismatch for 5.weight"),
        ("failing", "its factory failed: RuntimeError: no such shape"),
        ("none", "its factory made a NoneType; expected a torch.nn.Module"),
        ("missing", "has no function missing"),
    ):
        model = ModelFile(f"{factory}:{function}+{tmp_path / 'w.pt'}")
        with pytest.raises(ValueError, match=told) as refused:
            loading.log_probabilities(model, images(), classes=CLASSES)
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="requires the number of classes"):
        loading.log_probabilities(ModelFile(f"{factory}:net+{tmp_path / 'w.pt'}"), images())


class Wrapped(nn.Module):
    """Another way to take images or to say things."""

    def __init__(self, module: nn.Module, way: str) -> None:
        super().__init__()
        self.module, self.way = module, way

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if self.way == "nhwc":
            x = x.permute(0, 3, 1, 2)
        if self.way == "scaled":
            x = (x - torch.tensor([0.1, 0.2, 0.3])[:, None, None]) / torch.tensor([0.5, 0.25, 2.0])[:, None, None]
        y = self.module(x)
        if self.way == "probabilities":
            return y.softmax(1)
        if self.way == "log-probabilities":
            return y.log_softmax(1)
        if self.way == "several":
            return y.softmax(1), y
        return y


STRATEGIES = {
    "nhwc": Interface(layout="nhwc"),
    "probabilities": Interface(gives="probabilities"),
    "log-probabilities": Interface(gives="log-probabilities"),
    "several": Interface(output="1"),
}


@pytest.mark.parametrize("way", STRATEGIES)
def test_the_interface_says_what_a_model_takes_and_gives(way: str, tmp_path: Path) -> None:
    module = made()
    example = inputs(images(2))
    wrapped = Wrapped(module, way)
    torch.jit.trace(wrapped, example.permute(0, 2, 3, 1) if way == "nhwc" else example).save(str(tmp_path / "m.pt"))
    found = loading.log_probabilities(ModelFile(str(tmp_path / "m.pt")), images(), STRATEGIES[way], CLASSES)
    np.testing.assert_allclose(found.log_p, expected(module, images()), rtol=0, atol=1e-5)


def test_images_are_scaled_by_mean_and_deviation(tmp_path: Path) -> None:
    interface = Interface(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    scripted(made(), tmp_path / "m.pt")
    found = loading.log_probabilities(ModelFile(str(tmp_path / "m.pt")), images(), interface)
    np.testing.assert_allclose(found.log_p, expected(Wrapped(made(), "scaled"), images()), rtol=0, atol=1e-5)
    whole = loading.prepare_images(images(), Interface(layout="nhwc", mean=(0.0,), std=(1 / 255,)))
    np.testing.assert_allclose(whole, images().astype(np.float32), rtol=1e-6)
    with pytest.raises(ValueError, match="mean has 3 numbers, but the images have 1 channels"):
        loading.load_model(ModelFile(str(tmp_path / "m.pt")), (8, 6, 1), interface)


def test_one_output_is_the_second_of_two_classes(tmp_path: Path) -> None:
    module = made(classes=1)
    scripted(nn.Sequential(module, nn.Sigmoid()), tmp_path / "p.pt")
    scripted(nn.Sequential(module, nn.Flatten(0)), tmp_path / "z.pt")
    with torch.no_grad():
        z = module(inputs(images())).double()
    log_p = torch.nn.functional.logsigmoid(torch.hstack([-z, z])).numpy()
    for name, interface in (("p.pt", Interface(gives="probabilities")), ("z.pt", Interface())):
        found = loading.log_probabilities(ModelFile(str(tmp_path / name)), images(), interface, 2)
        np.testing.assert_allclose(found.log_p, log_p, rtol=0, atol=1e-5)


def test_what_a_model_cannot_do_is_told_in_one_line(tmp_path: Path) -> None:
    scripted(made(), tmp_path / "m.pt")
    exported(made(), tmp_path / "m.pt2")
    as_onnx("rows")(made(), tmp_path / "m.onnx")
    (tmp_path / "broken.pt2").write_bytes((tmp_path / "m.pt2").read_bytes()[:2000])
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    grey = images()[..., :1]
    for name in ("m.pt", "m.pt2", "m.onnx"):
        told = (
            r"takes images of shape \(3, 8, 6\), but the images have \(1, 8, 6\)"
            if name == "m.pt2"
            else "failed on 256 images of"
        )
        with pytest.raises(ValueError, match=f"{name} .*{told}") as refused:
            loading.log_probabilities(ModelFile(str(tmp_path / name)), grey)
        assert "\n" not in str(refused.value)
        with pytest.raises(ValueError, match=f"{name} returns 4 columns, but there are 5 classes"):
            loading.log_probabilities(ModelFile(str(tmp_path / name)), images(), classes=5)
        with pytest.raises(ValueError, match=f"{name}: the numbers of image 0 "):
            loading.log_probabilities(ModelFile(str(tmp_path / name)), images(), Interface(gives="probabilities"))
    for name, told in (("broken.pt2", "it may have been cut short"), ("broken.onnx", "cannot be read: ")):
        with pytest.raises(ValueError, match=told):
            loading.log_probabilities(ModelFile(str(tmp_path / name)), images())


def test_several_outputs_are_named(tmp_path: Path) -> None:
    torch.jit.trace(Wrapped(made(), "several"), inputs(images(2))).save(str(tmp_path / "m.pt"))
    with pytest.raises(ValueError, match="it has 2 outputs: 0, 1; set output to one of these names"):
        loading.log_probabilities(ModelFile(str(tmp_path / "m.pt")), images())
    with pytest.raises(ValueError, match="it has no output '2'; it has 0, 1"):
        loading.log_probabilities(ModelFile(str(tmp_path / "m.pt")), images(), Interface(output="2"))


def test_a_model_exported_in_training_mode_is_found_out(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 3)).train()
    normal = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten(), nn.Linear(144, 3))
    exported(module, tmp_path / "dropping.pt2")
    scripted(normal, tmp_path / "fine.pt")
    with pytest.raises(ValueError, match=r"two evaluations of one image differ by 0\.\d+"):
        loading.log_probabilities(ModelFile(str(tmp_path / "dropping.pt2")), images())


def test_a_whole_pickled_module_is_refused_and_never_run(tmp_path: Path, factory: str) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    state = made().state_dict()
    torch.save(Evil(), tmp_path / "whole.pt")
    torch.save(state, tmp_path / "state.pt")
    (tmp_path / "old.pt").write_bytes(b"\x80\x02}q\x00.")
    for name, told in (
        ("whole.pt", "would have to be unpickled, which runs code; save it with torch.export.save or torch.jit"),
        ("state.pt", r"it is a state dict, which needs its network: write package.module:factory\+state.pt"),
        ("old.pt", "it is not an archive"),
        (
            f"{factory}:net+{tmp_path}/whole.pt",
            r"are not unpickled, .*; save the weights: torch.save\(model.state_dict",
        ),
    ):
        model = ModelFile(name if ":" in name else str(tmp_path / name))
        for ask in (pin, partial(loading.log_probabilities, images=images(), classes=CLASSES)):
            with pytest.raises(ValueError, match=told) as refused:
                ask(model)
            assert "\n" not in str(refused.value)
    assert not (tmp_path / "ran").exists()


def test_weights_of_an_onnx_model_in_another_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    as_onnx("rows")(made(), tmp_path / "one.onnx")
    whole = onnx.load(tmp_path / "one.onnx")
    onnx.save(whole, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    monkeypatch.chdir(tmp_path)  # where onnxruntime would look for it
    with pytest.raises(ValueError, match="its weights are in another file; save one file"):
        loading.log_probabilities(ModelFile(str(tmp_path / "m.onnx")), images())


def test_without_onnxruntime_an_onnx_model_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    for name in ("onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=" is ONNX, ") as caught:
        loading.log_probabilities(ModelFile(str(tmp_path / "m.onnx")), np.zeros((1, 8, 8, 1), np.uint8))
    assert f"which needs {ONNXRUNTIME.advice}" == str(caught.value).partition(" is ONNX, ")[2]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model; to trace it takes seconds, so what is wrong is written into copies of it."""
    path = tmp_path_factory.mktemp("exported") / "m.pt2"
    exported_for(2, 8)(made(), path)
    return path


def rewritten(
    archive: Path, folder: Path, change: Callable[[str, bytes], bytes], more: dict[str, bytes] | None = None
) -> Path:
    """The archive with other records in this folder, written as torch writes them: stored, not compressed."""
    new = folder / "changed.pt2"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as out:
        top = old.namelist()[0].partition("/")[0]
        for name in old.namelist():
            out.writestr(name, change(name.partition("/")[2], old.read(name)))
        for name, held in (more or {}).items():
            out.writestr(f"{top}/{name}", held)
    return new


def replacing(where: str, old: str, new: str) -> Callable[[str, bytes], bytes]:
    def change(name: str, held: bytes) -> bytes:
        if name != where:
            return held
        found = re.sub(old, lambda _: new, held.decode())
        assert found.encode() != held
        return found.encode()

    return change


CODE = "__import__('pathlib').Path('ran').touch()"
ATTACKS = {
    "a weight to unpickle": (
        replacing("data/weights/model_weights_config.json", '"use_pickle": false', '"use_pickle": true'),
        "would have to be unpickled",
    ),
    "an operator that runs commands": (
        replacing("models/model.json", "torch.ops.aten.linear.default", "torch.os.system"),
        "uses 'torch.os.system', which is not an operator of torch",
    ),
    "an operator that opens files": (
        replacing("models/model.json", "torch.ops.aten.linear.default", "torch.ops.aten.from_file.default"),
        "not an operator of torch",
    ),
    "a size that is code": (
        replacing("models/model.json", r"Symbol\('s\d+', positive=True, integer=True\)", CODE),
        "which is not a plain expression",
    ),
    "a name that is code": (
        replacing("models/model.json", '"p_0_bias"', f'"p_0_bias={CODE}"'),
        "which is not a plain name",
    ),
    "a container whose module is imported": (
        replacing("models/model.json", "builtins.tuple", "collections.defaultdict"),
        "takes or returns a 'collections.defaultdict'",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_that_would_run_code_is_refused(
    attack: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    change, told = ATTACKS[attack]
    changed = rewritten(archive, tmp_path, change)
    with pytest.raises(ValueError, match=f"changed.pt2 is refused: .*{told}.*; such a file can run arbitrary code"):
        loading.log_probabilities(ModelFile(str(changed)), images())
    assert not (tmp_path / "ran").exists()


def test_example_inputs_and_compiled_code_are_refused_too(archive: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    torch.save((Evil(),), tmp_path / "evil")
    evil = (tmp_path / "evil").read_bytes()
    for change, more, told in (
        (lambda name, held: evil if name.startswith("data/sample_inputs") else held, {}, "model.pt would have to be"),
        (lambda name, held: held, {"data/aotinductor/model/m.so": b"code"}, "compiled code"),
    ):
        changed = rewritten(archive, tmp_path, change, more)
        with pytest.raises(ValueError, match=f"is refused: .*{told}"):
            loading.log_probabilities(ModelFile(str(changed)), images())
    assert not (tmp_path / "ran").exists()


def test_an_untouched_archive_passes_after_it_was_packed_again(archive: Path, tmp_path: Path) -> None:
    again = rewritten(archive, tmp_path, lambda name, held: held)
    found = loading.log_probabilities(ModelFile(str(again)), images())
    np.testing.assert_allclose(found.log_p, expected(made(), images()), rtol=0, atol=1e-5)


def test_guards_that_are_code_are_never_run(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    guards = replacing("models/model.json", r'"guards_code": \[\]', f'"guards_code": ["{CODE}"]')
    changed = rewritten(archive, tmp_path, guards)
    found = loading.log_probabilities(ModelFile(str(changed)), images())
    np.testing.assert_allclose(found.log_p, expected(made(), images()), rtol=0, atol=1e-5)
    assert not (tmp_path / "ran").exists()
