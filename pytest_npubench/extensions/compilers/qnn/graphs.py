"""Parts of a decoder as ONNX graphs of fixed shapes, by the nodes that AI Hub gets (compilers/hub/decoder.py).

# b = bucket, N = rows, K = key-value heads, D = head_dim
layer, prefill: x [1, b, hidden] -> hidden [1, b, hidden], keys_0, values_0 [1, K, b, D]
layer, decode:  x [N, 1, hidden], lengths int32 [N], past_keys_0, past_values_0 [N, K, b-1, D]
                -> hidden [N, 1, hidden], keys_0, values_0 [N, K, 1, D]
head:           x [N, hidden] -> logits [N, vocab]

Worked number: a layer of llama-3.2-1b has 60.8e6 weights, so its graph holds 121.6 MB in fp16.
"""

from __future__ import annotations

import math
from pathlib import Path

from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.hub.decoder import StepNodes, decode_layer, export_graph, prefill_layer
from pytest_npubench.extensions.compilers.hub.graph import DTYPE_BYTES, GraphSpec, limit_layers
from pytest_npubench.extensions.compilers.hub.layers import DecoderNodes, rotation_tables
from pytest_npubench.extensions.compilers.hub.onnx_file import MAX_INSIDE_BYTES, OnnxFile, model_file
from pytest_npubench.extensions.compilers.hub.weights import seeded_weights, weight_dims
from pytest_npubench.extensions.compilers.qnn import chunks
from pytest_npubench.extensions.compilers.qnn.facts import GraphRequest, Part


def graph_spec(request: GraphRequest) -> GraphSpec:
    """Of the decoder that the part is of; one layer of it where that is all. Raises ConfigError where there is none."""
    shape = request.shape if request.part in (Part.WHOLE, Part.ANSWERS) else limit_layers(request.shape, 1)
    rows = 1 if request.phase is Phase.PREFILL else request.batch_size
    return GraphSpec(shape=shape, phase=request.phase, bucket=request.bucket, batch_size=rows, dtype=request.dtype)


def weight_bytes(request: GraphRequest) -> int:
    """Of the part's weights."""
    spec = graph_spec(request)
    sizes = {name: math.prod(dims) * DTYPE_BYTES[spec.dtype] for name, dims in weight_dims(spec.shape).items()}
    layers = sum(size for name, size in sizes.items() if name.startswith("layers."))
    if request.part in (Part.LAYER, Part.CHUNK, Part.SHARED):
        return layers
    if request.part is Part.ATTENTION:
        return 0
    if request.part is Part.HEAD:
        return sizes["final_norm"] + sizes["embedding" if spec.shape.tied_embeddings else "head"]
    return sum(sizes.values())


def export_part(request: GraphRequest, folder: Path) -> Path:
    """Write the part's .onnx file into `folder`, which is made; large weights lie beside it."""
    spec = graph_spec(request)
    if request.part in (Part.WHOLE, Part.ANSWERS):
        return model_file(export_graph(spec, folder))
    source = seeded_weights(spec.shape, seed=spec.seed, dtype=spec.dtype)
    file = OnnxFile(
        f"{request.part.value}-{spec.name}", folder, weights_beside=weight_bytes(request) > MAX_INSIDE_BYTES
    )
    nodes = DecoderNodes(file, spec.shape, source, spec.dtype)
    if request.part is Part.HEAD:
        hidden = file.input("x", spec.dtype, (spec.batch_size, spec.shape.hidden))
        file.output(nodes.logits(hidden), "logits", "fp32", (spec.batch_size, spec.shape.vocab_size))
    elif request.part in chunks.PARTS:
        chunks.build(nodes, request.part, request.bucket)
    else:
        _layer(nodes, spec)
    return model_file(file.save())


def _layer(nodes: DecoderNodes, spec: GraphSpec) -> None:
    file, length = nodes.file, spec.bucket if spec.phase is Phase.PREFILL else 1
    dims = (spec.batch_size, length, spec.shape.hidden)
    x = file.input("x", spec.dtype, dims)
    if spec.phase is Phase.PREFILL:
        cos, sin = (file.constant(table[None, :, None]) for table in rotation_tables(spec.shape, spec.bucket))
        hidden = prefill_layer(nodes, spec, x, 0, cos, sin)
    else:
        lengths = file.input("lengths", "int32", (spec.batch_size,))
        hidden = decode_layer(nodes, spec, x, 0, StepNodes.of(nodes, spec, lengths))
    file.output(hidden, "hidden", spec.dtype, dims)
