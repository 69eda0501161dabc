"""Files of each kind, written by the usual tools, compared with the module itself in torch."""

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

SHAPE = (8, 6, 3)
CLASSES = 4
ROWS = 21
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


def make_network(seed: int = 0, classes: int = CLASSES) -> nn.Module:
    """A module whose batch norm has statistics, so that evaluation differs from training."""
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


def exported_for(min_rows: int, max_rows: int) -> Callable[[nn.Module, Path], None]:
    def export(module: nn.Module, path: Path) -> None:
        rows = torch.export.Dim("rows", min=min_rows, max=max_rows)
        torch.export.save(torch.export.export(module, (inputs(images(4)),), dynamic_shapes=({0: rows},)), path)

    return export


def as_onnx(rows: int | str) -> Callable[[nn.Module, Path], None]:
    """Write the model operator by operator, as exporters of other frameworks do."""

    def export(module: nn.Module, path: Path) -> None:
        onnx = pytest.importorskip("onnx")
        from onnx import helper, numpy_helper

        tensors = {}
        for name, value in module.state_dict().items():
            tensors[name.replace(".", "_")] = value.numpy()
        initializers = []
        for name, value in tensors.items():
            if value.ndim:
                initializers.append(numpy_helper.from_array(value, name))
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
        graph = helper.make_graph(nodes, "net", [x], [y], initializers)
        onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(onnx_model, path)

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
def test_file_returns_outputs_of_its_module(kind: str, tmp_path: Path) -> None:
    name, save = KINDS[kind]
    module = make_network()
    save(module, tmp_path / name)
    model = pin(ModelFile(str(tmp_path / name)))
    answers = loading.log_probabilities(model, images(), classes=CLASSES)
    assert answers.log_p.shape == (ROWS, CLASSES)
    assert answers.log_p.dtype == np.float64
    assert answers.floored == 0
    np.testing.assert_allclose(answers.log_p, expected(module, images()), rtol=0, atol=1e-5)
    loaded = loading.load_model(model, SHAPE, Interface(batch=5), CLASSES)
    np.testing.assert_allclose(loaded.answers(images()).log_p, answers.log_p, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(loaded.answers(images()[3:9]).log_p, loaded.answers(images()[3:9]).log_p)
    np.testing.assert_allclose(loaded.answers(images()[:1]).log_p, answers.log_p[:1], rtol=0, atol=1e-5)


def onnx_of_rows(module: nn.Linear, path: Path) -> None:
    """Write a linear model that, like those of skl2onnx, takes rows of features and has several outputs."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    weights = [numpy_helper.from_array(value.numpy(), name) for name, value in module.state_dict().items()]
    nodes = [
        helper.make_node("Gemm", ["x", "weight", "bias"], ["scores"], transB=1),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1),
    ]
    x, scores = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", count])
        for name, count in (("x", 3), ("scores", CLASSES))
    )
    label = helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["rows", 1])
    graph = helper.make_graph(nodes, "net", [x], [label, scores], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


ROWS_OF_TABLE: dict[str, Callable[[nn.Linear, Path], None]] = {
    "m.pt": scripted,
    "m.pt2": lambda module, path: torch.export.save(torch.export.export(module, (torch.zeros(4, 3),)), path),
    "m.onnx": onnx_of_rows,
}


@pytest.mark.parametrize("name", ROWS_OF_TABLE)
def test_files_receive_features_of_a_table_unchanged(name: str, tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(0, 100, (ROWS, 1, 1, 3)).astype(np.float32)
    module = nn.Linear(3, CLASSES).requires_grad_(False)
    ROWS_OF_TABLE[name](module, tmp_path / name)
    model = pin(ModelFile(str(tmp_path / name)))
    interface = Interface(output="scores") if name == "m.onnx" else Interface()
    answers = loading.log_probabilities(model, features, interface, CLASSES)  # type: ignore[arg-type]
    expected_log_p = module(torch.from_numpy(features[:, 0, 0])).double().log_softmax(1).numpy()
    np.testing.assert_allclose(answers.log_p, expected_log_p, rtol=0, atol=1e-3)


class FixedBatch(nn.Module):
    """A module with the fixed number of images of its example."""

    def __init__(self, module: nn.Module, rows: int) -> None:
        super().__init__()
        self.module = module
        self.rows = rows

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x).reshape(self.rows, -1)[:, :CLASSES] + torch.zeros(self.rows, 1)


@pytest.mark.parametrize("rows", [1, 3, 8, 50])
@pytest.mark.parametrize("kind", ["m.pt", "m.onnx"])
def test_fixed_batch_size_is_detected(kind: str, rows: int, tmp_path: Path) -> None:
    module = make_network()
    example = inputs(images(rows))
    fixed = FixedBatch(module, rows).eval()
    if kind == "m.pt":
        torch.jit.trace(fixed, example).save(str(tmp_path / kind))
    else:
        pytest.importorskip("onnx")
        torch.onnx.export(
            fixed, (example,), str(tmp_path / kind), dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "rows"}}
        )
    answers = loading.log_probabilities(pin(ModelFile(str(tmp_path / kind))), images(), classes=CLASSES)
    np.testing.assert_allclose(answers.log_p, expected(module, images()), rtol=0, atol=1e-5)


def test_undetected_batch_size_gives_one_line_error(tmp_path: Path) -> None:
    torch.jit.trace(FixedBatch(make_network(), 13).eval(), inputs(images(13))).save(str(tmp_path / "m.pt"))
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
def test_weights_with_factory_return_module_outputs(form: str, factory: str, tmp_path: Path) -> None:
    module = make_network()
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
    answers = loading.log_probabilities(model, images(), classes=CLASSES)
    np.testing.assert_allclose(answers.log_p, expected(module, images()), rtol=0, atol=1e-5)


def lightning_checkpoint(state: dict[str, Tensor]) -> dict[str, object]:
    """A checkpoint of Lightning 2's trainer, with the states of an optimiser and a callback."""
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
    ("renamed", "message"),
    [
        (lambda name: name if name.startswith("5") else f"model.{name}", "Missing key"),  # not a prefix of all names
        (lambda name: f"model.x{name}", "Missing key"),  # the rest does not fit the factory's network
    ],
)
def test_prefix_is_removed_only_if_the_rest_fits(
    renamed: Callable[[str], str], message: str, factory: str, tmp_path: Path
) -> None:
    torch.save({renamed(name): value for name, value in make_network().state_dict().items()}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=f"the weights do not fit the factory's network: .*{message}"):
        loading.log_probabilities(ModelFile(f"{factory}:net+{tmp_path / 'w.pt'}"), images(), classes=CLASSES)


def test_weights_that_do_not_fit_are_refused(factory: str, tmp_path: Path) -> None:
    torch.save(make_network(classes=7).state_dict(), tmp_path / "w.pt")
    for function, message in (
        ("net", "the weights do not fit the factory's network: .*size mismatch for 5.weight"),
        ("failing", "its factory failed: RuntimeError: no such shape"),
        ("none", "its factory made a NoneType; expected a torch.nn.Module"),
        ("missing", "has no function missing"),
    ):
        model = ModelFile(f"{factory}:{function}+{tmp_path / 'w.pt'}")
        with pytest.raises(ValueError, match=message) as refused:
            loading.log_probabilities(model, images(), classes=CLASSES)
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="requires the number of classes"):
        loading.log_probabilities(ModelFile(f"{factory}:net+{tmp_path / 'w.pt'}"), images())


class Wrapped(nn.Module):
    """A module with other inputs or outputs."""

    def __init__(self, module: nn.Module, way: str) -> None:
        super().__init__()
        self.module = module
        self.way = way

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
def test_interface_describes_inputs_and_outputs(way: str, tmp_path: Path) -> None:
    module = make_network()
    example = inputs(images(2))
    wrapped = Wrapped(module, way)
    torch.jit.trace(wrapped, example.permute(0, 2, 3, 1) if way == "nhwc" else example).save(str(tmp_path / "m.pt"))
    answers = loading.log_probabilities(ModelFile(str(tmp_path / "m.pt")), images(), STRATEGIES[way], CLASSES)
    np.testing.assert_allclose(answers.log_p, expected(module, images()), rtol=0, atol=1e-5)


def test_images_are_scaled_by_mean_and_deviation(tmp_path: Path) -> None:
    interface = Interface(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    scripted(make_network(), tmp_path / "m.pt")
    answers = loading.log_probabilities(ModelFile(str(tmp_path / "m.pt")), images(), interface)
    np.testing.assert_allclose(answers.log_p, expected(Wrapped(make_network(), "scaled"), images()), rtol=0, atol=1e-5)
    prepared = loading.prepare_images(images(), Interface(layout="nhwc", mean=(0.0,), std=(1 / 255,)))
    np.testing.assert_allclose(prepared, images().astype(np.float32), rtol=1e-6)
    with pytest.raises(ValueError, match="mean has 3 numbers, but the images have 1 channels"):
        loading.load_model(ModelFile(str(tmp_path / "m.pt")), (8, 6, 1), interface)


def test_single_output_is_second_of_two_classes(tmp_path: Path) -> None:
    module = make_network(classes=1)
    scripted(nn.Sequential(module, nn.Sigmoid()), tmp_path / "p.pt")
    scripted(nn.Sequential(module, nn.Flatten(0)), tmp_path / "z.pt")
    with torch.no_grad():
        z = module(inputs(images())).double()
    log_p = torch.nn.functional.logsigmoid(torch.hstack([-z, z])).numpy()
    for name, interface in (("p.pt", Interface(gives="probabilities")), ("z.pt", Interface())):
        answers = loading.log_probabilities(ModelFile(str(tmp_path / name)), images(), interface, 2)
        np.testing.assert_allclose(answers.log_p, log_p, rtol=0, atol=1e-5)


def test_unusable_models_are_refused(tmp_path: Path) -> None:
    scripted(make_network(), tmp_path / "m.pt")
    exported(make_network(), tmp_path / "m.pt2")
    as_onnx("rows")(make_network(), tmp_path / "m.onnx")
    (tmp_path / "broken.pt2").write_bytes((tmp_path / "m.pt2").read_bytes()[:2000])
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    grey = images()[..., :1]
    for name in ("m.pt", "m.pt2", "m.onnx"):
        message = "failed on 256 images of"
        if name == "m.pt2":
            message = r"takes images of shape \(3, 8, 6\), but the images have \(1, 8, 6\)"
        with pytest.raises(ValueError, match=f"{name} .*{message}") as refused:
            loading.log_probabilities(ModelFile(str(tmp_path / name)), grey)
        assert "\n" not in str(refused.value)
        with pytest.raises(ValueError, match=f"{name} returns 4 columns, but there are 5 classes"):
            loading.log_probabilities(ModelFile(str(tmp_path / name)), images(), classes=5)
        with pytest.raises(ValueError, match=f"{name}: the numbers of image 0 "):
            loading.log_probabilities(ModelFile(str(tmp_path / name)), images(), Interface(gives="probabilities"))
    for name, message in (("broken.pt2", "it may have been cut short"), ("broken.onnx", "cannot be read: ")):
        with pytest.raises(ValueError, match=message):
            loading.log_probabilities(ModelFile(str(tmp_path / name)), images())


def test_several_outputs_are_named(tmp_path: Path) -> None:
    torch.jit.trace(Wrapped(make_network(), "several"), inputs(images(2))).save(str(tmp_path / "m.pt"))
    with pytest.raises(ValueError, match="it has 2 outputs: 0, 1; set output to one of these names"):
        loading.log_probabilities(ModelFile(str(tmp_path / "m.pt")), images())
    with pytest.raises(ValueError, match="it has no output '2'; it has 0, 1"):
        loading.log_probabilities(ModelFile(str(tmp_path / "m.pt")), images(), Interface(output="2"))


def test_model_in_training_mode_is_detected(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 3)).train()
    normal = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten(), nn.Linear(144, 3))
    exported(module, tmp_path / "dropping.pt2")
    scripted(normal, tmp_path / "fine.pt")
    with pytest.raises(ValueError, match=r"two evaluations of one image differ by 0\.\d+"):
        loading.log_probabilities(ModelFile(str(tmp_path / "dropping.pt2")), images())


def test_pickled_module_is_refused_without_running(tmp_path: Path, factory: str) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    state = make_network().state_dict()
    torch.save(Evil(), tmp_path / "whole.pt")
    torch.save(state, tmp_path / "state.pt")
    (tmp_path / "old.pt").write_bytes(b"\x80\x02}q\x00.")
    for name, message in (
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
            with pytest.raises(ValueError, match=message) as refused:
                ask(model)
            assert "\n" not in str(refused.value)
    assert not (tmp_path / "ran").exists()


def test_external_onnx_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    as_onnx("rows")(make_network(), tmp_path / "one.onnx")
    onnx_model = onnx.load(tmp_path / "one.onnx")
    onnx.save(onnx_model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    monkeypatch.chdir(tmp_path)  # onnxruntime searches here
    with pytest.raises(ValueError, match="its weights are in another file; save one file"):
        loading.log_probabilities(ModelFile(str(tmp_path / "m.onnx")), images())


def test_missing_onnxruntime_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    for name in ("onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=" is ONNX, ") as caught:
        loading.log_probabilities(ModelFile(str(tmp_path / "m.onnx")), np.zeros((1, 8, 8, 1), np.uint8))
    assert str(caught.value).partition(" is ONNX, ")[2] == f"which needs {ONNXRUNTIME.advice}"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model; tracing takes seconds, so tests damage copies of it."""
    path = tmp_path_factory.mktemp("exported") / "m.pt2"
    exported_for(2, 8)(make_network(), path)
    return path


def rewritten(
    archive: Path, folder: Path, change: Callable[[str, bytes], bytes], more: dict[str, bytes] | None = None
) -> Path:
    """A changed copy of the archive in this folder, with records stored uncompressed as torch does."""
    new = folder / "changed.pt2"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as out:
        top = old.namelist()[0].partition("/")[0]
        for name in old.namelist():
            out.writestr(name, change(name.partition("/")[2], old.read(name)))
        for name, content in (more or {}).items():
            out.writestr(f"{top}/{name}", content)
    return new


def replacing(where: str, old: str, new: str) -> Callable[[str, bytes], bytes]:
    def change(name: str, content: bytes) -> bytes:
        if name != where:
            return content
        changed = re.sub(old, lambda _: new, content.decode())
        assert changed.encode() != content
        return changed.encode()

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
def test_archive_with_code_is_refused(
    attack: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    change, message = ATTACKS[attack]
    changed = rewritten(archive, tmp_path, change)
    with pytest.raises(ValueError, match=f"changed.pt2 is refused: .*{message}.*; such a file can run arbitrary code"):
        loading.log_probabilities(ModelFile(str(changed)), images())
    assert not (tmp_path / "ran").exists()


def test_example_inputs_and_compiled_code_are_refused(archive: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    torch.save((Evil(),), tmp_path / "evil")
    evil = (tmp_path / "evil").read_bytes()
    for change, more, message in (
        (
            lambda name, content: evil if name.startswith("data/sample_inputs") else content,
            {},
            "model.pt would have to be",
        ),
        (lambda name, content: content, {"data/aotinductor/model/m.so": b"code"}, "compiled code"),
    ):
        changed = rewritten(archive, tmp_path, change, more)
        with pytest.raises(ValueError, match=f"is refused: .*{message}"):
            loading.log_probabilities(ModelFile(str(changed)), images())
    assert not (tmp_path / "ran").exists()


def test_repacked_archive_is_accepted(archive: Path, tmp_path: Path) -> None:
    repacked = rewritten(archive, tmp_path, lambda name, content: content)
    answers = loading.log_probabilities(ModelFile(str(repacked)), images())
    np.testing.assert_allclose(answers.log_p, expected(make_network(), images()), rtol=0, atol=1e-5)


def test_guard_code_is_never_run(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    guards = replacing("models/model.json", r'"guards_code": \[\]', f'"guards_code": ["{CODE}"]')
    changed = rewritten(archive, tmp_path, guards)
    answers = loading.log_probabilities(ModelFile(str(changed)), images())
    np.testing.assert_allclose(answers.log_p, expected(make_network(), images()), rtol=0, atol=1e-5)
    assert not (tmp_path / "ran").exists()
