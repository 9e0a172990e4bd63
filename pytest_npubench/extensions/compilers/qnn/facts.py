"""What is asked of the compiler for one graph, and what it says. Both cross processes, so they hold plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.shapes import DecoderShape


class Part(Enum):
    """LAYER: one layer of the decoder, which all layers equal but for weights. HEAD: norm and logits of one token.
    WHOLE: all of it. ANSWERS: a small decoder, which also runs on the emulated NPU.

    Of a prompt in chunks (chunks.py), with the bucket as the positions up to the chunk's end: CHUNK: one layer of it.
    SHARED: what of that layer is the same for every chunk. ATTENTION: what is not.

    PRODUCT: queries of `bucket` tokens with outliers, in fp16 and in INT8, which also run there (product.py)."""

    LAYER = "layer"
    HEAD = "head"
    WHOLE = "whole"
    ANSWERS = "answers"
    CHUNK = "chunk"
    SHARED = "shared"
    ATTENTION = "attention"
    PRODUCT = "product"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """One part of a decoder in a phase and bucket."""

    shape: DecoderShape
    dtype: str
    batch_size: int
    phase: Phase
    bucket: int
    part: Part = Part.LAYER


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFacts:
    """context_bytes: of all context binaries, num_contexts of them; weight_bytes: of the graph's weights, each once.
    compile_cpu_s: of the compiler alone. optimize_s, sequence_s and vtcm_s: wall seconds of its phases, as its own
    profile has them. vtcm_bytes, spill_bytes and dram_tensor_bytes: on-chip memory of the graph, what spills from
    it and what never is in it (binary_info.py). answer_error: of the emulated NPU, relative to the reference
    (answers.py). Of a product, context_bytes is of one INT8 graph, fp16_context_bytes of the other, the errors and
    levels_off are those of product.ProductErrors."""

    context_bytes: float
    num_contexts: float
    weight_bytes: float
    compile_cpu_s: float
    optimize_s: float | None = None
    sequence_s: float | None = None
    vtcm_s: float | None = None
    vtcm_bytes: float | None = None
    spill_bytes: float | None = None
    dram_tensor_bytes: float | None = None
    answer_error: float | None = None
    fp16_context_bytes: float | None = None
    fp16_error: float | None = None
    max_min_error: float | None = None
    clip_error: float | None = None
    shadow_error: float | None = None
    levels_off: float | None = None
