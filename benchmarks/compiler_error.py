"""The compiler's estimates against operator times that others measured on a TPU v6e, as docs/compiled.md shows them.

    python benchmarks/compiler_error.py

Needs the extra [tpu-compiler] and no device. A prefill layer is a thirtieth of what 32 layers take beyond 2; a decode
step is whole, 32 layers and the vocabulary. A binary that a release of the compiler cannot make is said, and left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from papers import Cell, published

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.binary_estimate import estimate
from pytest_npubench.engines.binary_facts import BinaryRequest
from pytest_npubench.engines.shapes import DecoderShape, dense_shape
from pytest_npubench.errors import NpubenchError
from pytest_npubench.extensions.compilers.compiled.compiler import compiler_process, versions
from pytest_npubench.plain_text import plain
from pytest_npubench.processes.child import Child
from pytest_npubench.suites.hardware_files import load_all

SHAPE = replace(dense_shape("mistral-7b-v0.3"), name="llama-3.1-8b", vocab_size=128_256, rope_theta=500_000.0)
FEW_LAYERS = 2
MEMORY_BYTES = 12 * 2**30
OPERATORS = ("norms", "q_proj", "rope", "attention", "o_proj", "feed_forward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """Seconds by the cycles alone, and as they are priced."""

    raw_s: float
    priced_s: float

    def layer_beyond(self, few: Estimated) -> Estimated:
        layers = SHAPE.num_layers - FEW_LAYERS
        return Estimated(raw_s=(self.raw_s - few.raw_s) / layers, priced_s=(self.priced_s - few.priced_s) / layers)


def estimated(
    child: Child, spec: HardwareSpec, shape: DecoderShape, phase: Phase, batch: int, bucket: int
) -> Estimated:
    request = BinaryRequest(shape=shape, dtype="bf16", batch_size=batch, phase=phase, bucket=bucket)
    _, facts = child.call("facts", request, 1)
    assert spec.compiler is not None
    found = estimate(facts, spec, shape, phase, bucket)
    return Estimated(raw_s=facts.cycles / spec.compiler.clock.value, priced_s=found.total_s)


def measured_s(row: Mapping[str, Cell]) -> float:
    """Of a prefill layer or a whole decode step."""
    layer = sum(float(row[name]) for name in OPERATORS)
    if row["phase"] == Phase.PREFILL.value:
        return 1e-6 * layer
    return 1e-6 * (SHAPE.num_layers * layer + float(row["head"]))


def main() -> None:
    table = published("tpu_v6e_operators").table("operators")
    spec = replace(load_all([default_directory()])["tpu-v6e"], tensor_parallel=1)
    print(", ".join(f"{name} {version}" for name, version in versions("tpu").items()))
    print("\n| | measured, us | cycles alone, us | priced, us | error |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for cells in table.rows:
            row = dict(zip(table.columns, cells, strict=True))
            phase, batch, bucket = Phase(str(row["phase"])), int(row["batch"]), int(row["tokens"])
            name = f"{phase.value} layer, {bucket} tokens"
            if phase is Phase.DECODE:
                name = f"decode step, batch {batch} at {bucket} tokens"
            child = compiler_process(spec, "v6e:1x1", Path(folder), MEMORY_BYTES)
            try:
                child.started()
                found = estimated(child, spec, SHAPE, phase, batch, bucket)
                if phase is Phase.PREFILL:
                    few = replace(SHAPE, num_layers=FEW_LAYERS)
                    found = found.layer_beyond(estimated(child, spec, few, phase, batch, bucket))
            except NpubenchError as error:
                print(
                    f"| {name} | {1e6 * measured_s(row):,.0f} | | | not compiled: {plain(str(error))[:120]} |",
                    flush=True,
                )
                continue
            finally:
                child.close()
            times = (f"{1e6 * one:,.0f}" for one in (measured_s(row), found.raw_s, found.priced_s))
            print(f"| {name} | {' | '.join(times)} | {found.priced_s / measured_s(row) - 1:+.1%} |", flush=True)


if __name__ == "__main__":
    main()
