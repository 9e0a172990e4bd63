"""Which static graph of which decoder: one phase, bucket, batch size and dtype.

A prefill graph runs one padded prompt, a decode graph one step of a whole batch; so TTFT_b is the time of the prefill
graph of bucket b and TBT_b that of its decode graph (LENS, arXiv 2606.18042, section 4.2).

Worked number: llama-3.2-1b in fp16 has 1.24e9 weights, so each of its graphs is 2.47 GB to upload.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError

EXPORT_VERSION = 1  # rises whenever the same GraphSpec would become another graph
DTYPE_BYTES = {"fp32": 4, "fp16": 2}
# what shapes have by default since they have these fields: digests stay as they were without them
LATER_FIELDS = (
    ("architecture", "llama"),
    ("qkv_bias", False),
    ("sliding_window", None),
    ("experts", None),
    ("layers", ()),
    ("other_parameters", 0),
    ("draft_parameters", 0),
    ("weight_bits", None),
    ("doubts", ()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSpec:
    """One graph. A prefill graph always has one row. Raises ConfigError where there is no such graph."""

    shape: DecoderShape
    phase: Phase
    bucket: int
    batch_size: int = 1
    dtype: str = "fp32"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise ConfigError(f"dtype {self.dtype!r}: AI Hub graphs are exported in {' or '.join(DTYPE_BYTES)}")
        if self.bucket < 2:
            raise ConfigError(f"bucket {self.bucket}: a graph needs 2 positions at least, one of them new")
        if self.batch_size < 1 or (self.phase is Phase.PREFILL and self.batch_size != 1):
            raise ConfigError(f"batch size {self.batch_size}: a decode graph has 1 row or more, a prefill graph 1")

    @property
    def name(self) -> str:
        """As the reference decoder names its binaries: decode-llama-3.2-1b-b4-128."""
        return f"{self.phase.value}-{self.shape.name}-b{self.batch_size}-{self.bucket}"

    @property
    def weight_bytes(self) -> int:
        return self.shape.num_parameters * DTYPE_BYTES[self.dtype]

    @property
    def digest(self) -> str:
        """12 hex digits over all that decides the graph's nodes and weights."""
        shape = {key: value for key, value in asdict(self.shape).items() if (key, value) not in LATER_FIELDS}
        body = asdict(self) | {"shape": shape, "phase": self.phase.value, "version": EXPORT_VERSION}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]


def limit_layers(shape: DecoderShape, num_layers: int) -> DecoderShape:
    """Returns the shape with its first layers only, under a name that says so: another model, cheaper to upload and
    compile.

    Raises ConfigError for more layers than there are.
    """
    if not 1 <= num_layers <= shape.num_layers:
        raise ConfigError(f"{shape.name}: {num_layers} layers asked for; it has 1 to {shape.num_layers}")
    if num_layers == shape.num_layers:
        return shape
    return replace(shape, name=f"{shape.name}-l{num_layers}", num_layers=num_layers)
