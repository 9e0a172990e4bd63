"""One matrix multiplication as a static graph: the weight lies inside it, every dimension is fixed.

    activation [cols, tokens] -> output [rows, tokens] = weight [rows, cols] @ activation

Weights are normal with variance 1 / cols; they follow from seed, rows and cols, so graphs of one weight for several
token counts hold the same.

Worked number: [28672, 4096] in fp16 is 235 MB, uploaded once for every token count.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pytest_npubench.engines.aihub.graph import DTYPE_BYTES
from pytest_npubench.engines.aihub.weights import NUMPY_DTYPES, Array
from pytest_npubench.errors import ConfigError

EXPORT_VERSION = 1  # rises whenever the same MatmulGraph would become another graph


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulGraph:
    """Weight [rows, cols] times activation [cols, tokens]. Raises ConfigError where there is no such graph."""

    rows: int
    cols: int
    tokens: int
    dtype: str = "fp16"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise ConfigError(f"dtype {self.dtype!r}: AI Hub graphs are exported in {' or '.join(DTYPE_BYTES)}")
        if min(self.rows, self.cols, self.tokens) < 1:
            raise ConfigError(f"a graph of [{self.rows}, {self.cols}] x {self.tokens}; want 1 or more of each")

    @property
    def name(self) -> str:
        return f"matmul-{self.rows}x{self.cols}-{self.tokens}"

    @property
    def weight_bytes(self) -> int:
        return self.rows * self.cols * DTYPE_BYTES[self.dtype]

    @property
    def digest(self) -> str:
        """12 hex digits over all that decides the graph's node and weight."""
        body = asdict(self) | {"kind": "matmul", "version": EXPORT_VERSION}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]


def export_matmul(spec: MatmulGraph, folder: Path) -> Path:
    """Write the graph into `folder`, which is made; returns the .onnx file, or the folder where its weight lies beside
    it. Raises ImportError where onnx is not installed."""
    from pytest_npubench.engines.aihub.onnx_file import MAX_INSIDE_BYTES, OnnxFile

    file = OnnxFile(spec.name, folder, weights_beside=spec.weight_bytes > MAX_INSIDE_BYTES)
    file.weight("weight", seeded_weight(spec))
    activation = file.input("activation", spec.dtype, (spec.cols, spec.tokens))
    file.output(file.node("MatMul", "weight", activation), "output", spec.dtype, (spec.rows, spec.tokens))
    return file.save()


def seeded_weight(spec: MatmulGraph) -> Array:
    """[rows, cols] in the graph's dtype."""
    generator = np.random.default_rng((spec.seed, spec.rows, spec.cols))
    values = generator.standard_normal((spec.rows, spec.cols), dtype=np.float32)
    values *= np.float32(1 / math.sqrt(spec.cols))
    return values.astype(NUMPY_DTYPES[spec.dtype], copy=False)
