"""What is asked of a compiler for one binary, and what it says. Both cross processes, so they hold plain data."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.jax_moe.sizes import ServingSizes, Size
from pytest_npubench.engines.shapes import DecoderShape


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryRequest:
    """One binary of the decoder: prefill or decode of a bucket; or the move of its cache into `larger`."""

    shape: DecoderShape
    dtype: str
    batch_size: int
    phase: Phase
    bucket: int
    larger: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBinaryRequest:
    """The layers of a serving decoder for one size (engines/jax_moe)."""

    shape: DecoderShape
    dtype: str
    sizes: ServingSizes
    size: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryFacts:
    """Of each device. cycles: the compiler's estimates added up, loop bodies as often as they run, None where it tells
    none; loops of which it does not say how often count once and are in unknown_loops. temporary_bytes: None where it
    tells none; code_bytes: None where the program's machine code cannot be told. flops: its count. donated_bytes:
    buffers that were given to be written in place; aliased_bytes: those that are. cache_copies: instructions that copy
    a whole layer's keys or values, copy_cycles their estimate. kernels: calls of hand-written kernels, which have no
    cycles; collective_bytes: what collectives take in. compile_cpu_s: tracing, lowering and compiling; reference_cpu_s:
    the same of a program that never changes, just before. modules: how many two tracings make; module: 48 bits of the
    module's hash.
    expert_copies: of a serving binary, instructions that make an array of all matrices of a layer's experts.
    vector_cycles and vector_bytes: products on the vector unit, kernel_cycles: of a TPU's attention kernels by their
    bundles (attention_bundles.py); None where they are not known."""

    cycles: float | None
    flops: float
    argument_bytes: float
    output_bytes: float
    temporary_bytes: float | None
    code_bytes: float | None
    donated_bytes: float
    aliased_bytes: float
    cache_copies: float
    copy_cycles: float
    kernels: float
    collectives: float
    collective_bytes: float
    unknown_loops: float
    compile_cpu_s: float
    reference_cpu_s: float
    modules: float
    module: float
    vector_cycles: float | None = None
    vector_bytes: float | None = None
    kernel_cycles: float | None = None
    expert_copies: float = 0.0
