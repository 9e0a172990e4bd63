"""Parts of a decoder against the whole one, run by ONNX Runtime on the CPU, and what finds a wrong answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed: pip install pytest-npubench[qualcomm-compiler]")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; it runs the graphs in these tests")

import onnx
import onnxruntime
from engines import decoders

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.shapes import DecoderShape, dense_shape
from pytest_npubench.extensions.compilers.hub import decoder, layers
from pytest_npubench.extensions.compilers.hub.decoder import export_graph
from pytest_npubench.extensions.compilers.hub.graph import GraphSpec
from pytest_npubench.extensions.compilers.hub.layers import rotation_tables
from pytest_npubench.extensions.compilers.hub.weights import seeded_weights
from pytest_npubench.extensions.compilers.qnn.answers import LIMIT, answer_error, small
from pytest_npubench.extensions.compilers.qnn.chunks import CHUNK_TOKENS, chunk_ends
from pytest_npubench.extensions.compilers.qnn.facts import GraphRequest, Part
from pytest_npubench.extensions.compilers.qnn.graphs import export_part, weight_bytes

SHAPES = list(decoders.SHAPES.values())
LLAMA = dense_shape("llama-3.2-1b")


def run(path: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    file = path if path.suffix else path / "model.onnx"
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def request(shape: DecoderShape, phase: Phase, part: Part, bucket: int = 16) -> GraphRequest:
    return GraphRequest(shape=shape, dtype="fp32", batch_size=1, phase=phase, bucket=bucket, part=part)


@pytest.mark.parametrize("shape", SHAPES[:2], ids=lambda shape: shape.name)
@pytest.mark.parametrize("phase", Phase)
def test_a_layer_and_the_head_are_a_decoder_of_one_layer(shape: DecoderShape, phase: Phase, tmp_path: Path) -> None:
    one = replace(shape, num_layers=1)
    generator = np.random.default_rng(4)
    number = 16 if phase is Phase.PREFILL else 1
    tokens = generator.integers(0, shape.vocab_size, number, dtype=np.int32)
    past = (1, shape.num_kv_heads, 15, shape.head_dim)
    cached = {f"past_{name}_0": generator.standard_normal(past, dtype=np.float32) for name in ("keys", "values")}
    state = {} if phase is Phase.PREFILL else {**cached, "lengths": np.int32([9])}
    ids = {"tokens": tokens[None], "length": np.int32([11])} if phase is Phase.PREFILL else {"tokens": tokens}
    whole = run(export_graph(GraphSpec(shape=one, phase=phase, bucket=16), tmp_path / "whole"), {**ids, **state})
    embedded = seeded_weights(one, seed=0, dtype="fp32")("embedding")[tokens][None]
    layer = run(export_part(request(one, phase, Part.LAYER), tmp_path / "layer"), {"x": embedded, **state})
    last = layer["hidden"][:, 10 if phase is Phase.PREFILL else 0]
    head = run(export_part(request(one, phase, Part.HEAD), tmp_path / "head"), {"x": last})
    np.testing.assert_allclose(head["logits"], whole["logits"], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(layer["keys_0"], whole["keys_0"], atol=1e-6)
    np.testing.assert_allclose(layer["values_0"], whole["values_0"], atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES[:2], ids=lambda shape: shape.name)
def test_chunks_one_after_the_other_are_the_whole_prompt_and_so_are_shared_graphs(
    shape: DecoderShape, tmp_path: Path
) -> None:
    """Chunk by chunk over what the chunks before gave back, by a graph for each chunk and by shared ones."""
    one = replace(shape, num_layers=1)
    x = np.random.default_rng(5).standard_normal((1, 2 * CHUNK_TOKENS, one.hidden), dtype=np.float32)
    whole = run(export_part(request(one, Phase.PREFILL, Part.LAYER, 2 * CHUNK_TOKENS), tmp_path / "whole"), {"x": x})
    tables = [table[None, :, None] for table in rotation_tables(one, 2 * CHUNK_TOKENS)]
    nothing = np.zeros((1, CHUNK_TOKENS, one.num_heads * one.head_dim), np.float32)
    past: dict[str, Any] = {}
    for end in chunk_ends(2 * CHUNK_TOKENS):

        def graph(part: Part, inputs: Mapping[str, Any], end: int = end) -> dict[str, Any]:
            bucket = CHUNK_TOKENS if part is Part.SHARED else end
            folder = tmp_path / f"{part.value}{end}"
            return run(export_part(request(one, Phase.PREFILL, part, bucket), folder), inputs)

        rows = slice(end - CHUNK_TOKENS, end)
        alone = graph(Part.CHUNK, {"x": x[:, rows], **past})
        cos, sin = (table[:, rows] for table in tables)
        inputs = {"x": x[:, rows], "cos": cos, "sin": sin}
        projected = graph(Part.SHARED, {**inputs, "attended": nothing})
        own = {name: projected[f"new_{name}"] for name in ("keys", "values")}
        attended = graph(Part.ATTENTION, {"queries": projected["queries"], **own, **past})["attended"]
        shared = graph(Part.SHARED, {**inputs, "attended": attended})
        for found in (alone, shared):
            np.testing.assert_allclose(found["hidden"], whole["hidden"][:, rows], atol=2e-4, rtol=1e-4)
            np.testing.assert_allclose(found["new_keys"], whole["keys_0"][:, :, rows], atol=1e-5)
        joined = {name: [past[f"past_{name}"]] if past else [] for name in own}
        past = {f"past_{name}": np.concatenate([*joined[name], own[name]], axis=2) for name in own}


def test_a_prompt_is_filled_up_to_whole_chunks() -> None:
    assert [chunk_ends(tokens) for tokens in (1, 256, 257, 1024)] == [(256,), (256,), (256, 512), (256, 512, 768, 1024)]


def test_weights_by_hand() -> None:
    """llama-3.2-1b: a layer 2048 x (2048 + 512 + 512 + 2048) + 3 x 2048 x 8192 + 2 norms, a table of 128,256 tokens."""
    layer = 2048 * 5120 + 3 * 2048 * 8192 + 2 * 2048
    table = 128_256 * 2048
    fp16 = replace(request(LLAMA, Phase.DECODE, Part.LAYER), dtype="fp16")
    assert weight_bytes(fp16) == 2 * layer
    assert weight_bytes(replace(fp16, part=Part.HEAD)) == 2 * (table + 2048)
    assert [weight_bytes(replace(fp16, part=part)) for part in (Part.CHUNK, Part.SHARED, Part.ATTENTION)] == [
        2 * layer,
        2 * layer,
        0,
    ]
    assert weight_bytes(replace(fp16, part=Part.WHOLE)) == 2 * LLAMA.num_parameters


def test_half_precision_is_within_the_limit(tmp_path: Path) -> None:
    assert answer_error(LLAMA, 32, "fp16", tmp_path, run) < LIMIT / 4


def test_the_small_decoder_is_the_models_own(tmp_path: Path) -> None:
    shape = dense_shape("qwen3-14b")
    tiny = small(shape)
    assert (tiny.qk_norm, tiny.tied_embeddings, tiny.rms_eps) == (shape.qk_norm, shape.tied_embeddings, shape.rms_eps)
    assert answer_error(shape, 16, "fp32", tmp_path, run) < 1e-5


def one_more(nodes: layers.DecoderNodes, spec: GraphSpec, lengths: str) -> str:
    """A step's mask that lets one cached position in that holds nothing yet."""
    more = nodes.file.node("Add", lengths, nodes.file.constant(np.int32([1])))
    return right(nodes, spec, more)


right = decoder._visible


@pytest.mark.parametrize("bucket", [16, 300])
def test_a_mask_that_is_wrong_by_one_position_is_found(bucket: int, tmp_path: Path) -> None:
    with patch.object(decoder, "_visible", one_more):
        found = answer_error(LLAMA, bucket, "fp32", tmp_path, run)
    assert found > 3 * LIMIT


def test_a_prompt_that_sees_its_next_token_is_found(tmp_path: Path) -> None:
    """The mask of np.arange(end) <= np.arange(start, end): a diagonal too many."""
    attend = layers.DecoderNodes.attend

    def sees_more(nodes: layers.DecoderNodes, q: str, keys: str, values: str, visible: str) -> str:
        given = nodes.file._initializers.get(visible)
        if given is not None:
            mask = onnx.numpy_helper.to_array(given)
            visible = nodes.file.constant(mask | np.roll(mask, 1, axis=-1))
        return attend(nodes, q, keys, values, visible)

    with patch.object(layers.DecoderNodes, "attend", sees_more):
        assert answer_error(LLAMA, 300, "fp32", tmp_path, run) > 3 * LIMIT


def test_logits_that_are_no_numbers_are_found(tmp_path: Path) -> None:
    def lost(path: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value * np.nan for name, value in run(path, inputs).items()}

    assert answer_error(LLAMA, 16, "fp32", tmp_path, lost) == float("inf")
