"""The exported graphs against the reference decoder, logits and caches, run by ONNX Runtime."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("onnx", reason="onnx is not installed: pip install pytest-npubench[qaihub]")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; it runs the exported graphs in these tests")

import jax.numpy as jnp
import onnx
import onnxruntime
from engines import decoders

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.jax_dense import forward
from pytest_npubench.engines.jax_dense.forward import Caches, DecoderState
from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.compilers.hub import decoder, onnx_file
from pytest_npubench.extensions.compilers.hub.decoder import export_graph
from pytest_npubench.extensions.compilers.hub.graph import GraphSpec, limit_layers
from pytest_npubench.extensions.compilers.hub.weights import Array, WeightSource, seeded_weights, weight_dims

SHAPES = list(decoders.SHAPES.values())
TOLERANCE = 2e-5  # float32 sums in another order; a wrong mask, rotation or norm is off by 1e-2 and more


def odd_weights(shape: DecoderShape) -> WeightSource:
    """Seeded ones, but norms of 1 would hide a norm that is left out or applied twice."""
    plain = seeded_weights(shape, seed=3, dtype="fp32")

    def weight(name: str) -> Array:
        value = plain(name)
        if value.ndim == 1:
            generator = np.random.default_rng(crc32(name.encode()))  # each its own: one may stand in for another
            return generator.uniform(0.5, 1.5, value.size).astype(np.float32)
        return value * np.float32(0.3) if name == "embedding" else value

    return weight


def as_tree(shape: DecoderShape, weights: WeightSource) -> dict[str, Any]:
    """The same weights as the reference decoder wants them."""
    tree: dict[str, Any] = {"layers": [{} for _ in range(shape.num_layers)]}
    for name in weight_dims(shape):
        *path, last = name.split(".")
        (tree["layers"][int(path[1])] if path else tree)[last] = jnp.asarray(weights(name))
    return tree


def empty_caches(shape: DecoderShape, rows: int, length: int) -> Caches:
    zeros = jnp.zeros((rows, shape.num_kv_heads, length, shape.head_dim))
    return Caches((zeros,) * shape.num_layers, (zeros,) * shape.num_layers)


def run(path: Path, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    file = path if path.suffix else path / "model.onnx"
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize("shape", decoders.soak_but_first(SHAPES), ids=lambda shape: shape.name)
@pytest.mark.parametrize(("bucket", "length"), [(8, 8), (8, 3), (300, 271)])
def test_prefill(shape: DecoderShape, bucket: int, length: int, tmp_path: Path) -> None:
    weights = odd_weights(shape)
    spec = GraphSpec(shape=shape, phase=Phase.PREFILL, bucket=bucket)
    prompt = np.random.default_rng(1).integers(0, shape.vocab_size, bucket, dtype=np.int32)
    found = run(export_graph(spec, tmp_path, weights), {"tokens": prompt[None], "length": np.int32([length])})
    tree = as_tree(shape, weights)
    hidden, caches = forward.prefill_hidden(
        shape, tree, empty_caches(shape, 1, bucket), jnp.asarray(prompt), jnp.int32(length), jnp.int32(0)
    )
    np.testing.assert_allclose(found["logits"], forward.logits(shape, tree, hidden), atol=TOLERANCE, rtol=1e-4)
    for index in range(shape.num_layers):
        np.testing.assert_allclose(found[f"keys_{index}"], caches.keys[index], atol=TOLERANCE, rtol=1e-4)
        np.testing.assert_allclose(found[f"values_{index}"], caches.values[index], atol=TOLERANCE, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_decode(shape: DecoderShape, tmp_path: Path) -> None:
    """Rows of different lengths, the shortest one empty, the longest one filling the bucket with its new token."""
    weights, bucket, lengths = odd_weights(shape), 16, np.int32([15, 0, 6])
    generator = np.random.default_rng(2)
    dims = (len(lengths), shape.num_kv_heads, bucket, shape.head_dim)
    keys, values = (
        tuple(generator.standard_normal(dims, dtype=np.float32) for _ in range(shape.num_layers)) for _ in range(2)
    )
    tokens = generator.integers(0, shape.vocab_size, len(lengths), dtype=np.int32)
    spec = GraphSpec(shape=shape, phase=Phase.DECODE, bucket=bucket, batch_size=len(lengths))
    inputs = {"tokens": tokens, "lengths": lengths}
    for index in range(shape.num_layers):
        inputs |= {f"past_keys_{index}": keys[index][:, :, :-1], f"past_values_{index}": values[index][:, :, :-1]}
    found = run(export_graph(spec, tmp_path, weights), inputs)
    tree = as_tree(shape, weights)
    state = DecoderState(
        Caches(*(tuple(map(jnp.asarray, part)) for part in (keys, values))), jnp.asarray(tokens), lengths
    )
    hidden, caches = forward.decode_hidden(shape, tree, state)
    np.testing.assert_allclose(found["logits"], forward.logits(shape, tree, hidden), atol=TOLERANCE, rtol=1e-4)
    rows = np.arange(len(lengths))
    for index in range(shape.num_layers):
        new = np.asarray(caches.keys[index])[rows, :, lengths]
        np.testing.assert_allclose(found[f"keys_{index}"][:, :, 0], new, atol=TOLERANCE, rtol=1e-4)
        new = np.asarray(caches.values[index])[rows, :, lengths]
        np.testing.assert_allclose(found[f"values_{index}"][:, :, 0], new, atol=TOLERANCE, rtol=1e-4)


def test_half_precision(tmp_path: Path) -> None:
    """fp16 weights and activations: every weight is stored in two bytes, and the logits are those of float32 nearly."""
    shape = decoders.TIED
    prompt, length = np.arange(8, dtype=np.int32)[None], np.int32([8])
    logits = {}
    for dtype in ("fp32", "fp16"):
        spec = GraphSpec(shape=shape, phase=Phase.PREFILL, bucket=8, dtype=dtype)
        path = export_graph(spec, tmp_path / dtype)
        logits[dtype] = run(path, {"tokens": prompt, "length": length})["logits"]
    stored = onnx.load(tmp_path / "fp16" / "model.onnx").graph.initializer
    assert {tensor.data_type for tensor in stored if tensor.name in weight_dims(shape)} == {onnx.TensorProto.FLOAT16}
    np.testing.assert_allclose(logits["fp16"], logits["fp32"], atol=0.05)
    assert np.abs(logits["fp16"] - logits["fp32"]).max() > 0


def test_weights_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit of a protobuf message: a folder of one .onnx and one .data, as the client takes it."""
    spec = GraphSpec(shape=decoders.NORMED, phase=Phase.PREFILL, bucket=8)
    inputs = {"tokens": np.arange(8, dtype=np.int32)[None], "length": np.int32([5])}
    inside = run(export_graph(spec, tmp_path / "inside"), inputs)
    monkeypatch.setattr(decoder, "MAX_INSIDE_BYTES", 1000)
    path = export_graph(spec, tmp_path / "beside")
    assert sorted(item.name for item in path.iterdir()) == ["model.data", "model.onnx"]
    assert (path / "model.data").stat().st_size == spec.weight_bytes
    np.testing.assert_array_equal(run(path, inputs)["logits"], inside["logits"])
    assert onnx_file.MAX_INSIDE_BYTES < 2**31


def test_graphs_are_static(tmp_path: Path) -> None:
    """No dimension is open, no input is of 64 bits, and the digest tells graphs apart."""
    shape = decoders.TIED
    specs = [GraphSpec(shape=shape, phase=phase, bucket=bucket) for phase in Phase for bucket in (8, 16)]
    assert len({spec.digest for spec in specs}) == 4
    for spec in specs:
        graph = onnx.load(export_graph(spec, tmp_path / spec.name)).graph
        for value in (*graph.input, *graph.output):
            assert all(dim.dim_value > 0 for dim in value.type.tensor_type.shape.dim), value
            assert value.type.tensor_type.elem_type != onnx.TensorProto.INT64


def test_weight_bytes() -> None:
    for name in ("tiny-llama", "tiny-qwen", "llama-3.2-1b", "qwen3-14b"):
        shape = decoder_shape(name)
        assert sum(int(np.prod(dims)) for dims in weight_dims(shape).values()) == shape.num_parameters


def test_limited_layers() -> None:
    shape = limit_layers(decoder_shape("llama-3.2-1b"), 4)
    assert (shape.name, shape.num_layers) == ("llama-3.2-1b-l4", 4)
    assert limit_layers(shape, 4) is shape
    with pytest.raises(ConfigError, match="5 layers asked for; it has 1 to 4"):
        limit_layers(shape, 5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": "fp8"}, "dtype 'fp8'"),
        ({"bucket": 1}, "bucket 1"),
        ({"batch_size": 2}, "batch size 2"),
        ({"phase": Phase.DECODE, "batch_size": 0}, "batch size 0"),
    ],
)
def test_refusals(change: dict[str, Any], reason: str) -> None:
    spec = GraphSpec(shape=decoders.TIED, phase=Phase.PREFILL, bucket=8)
    with pytest.raises(ConfigError, match=reason):
        dataclasses.replace(spec, **change)
