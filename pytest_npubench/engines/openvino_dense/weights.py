"""The decoder's weights as numpy arrays: those of engines/probe.py, by which its answers are checked.

They are constants of every graph, so the graphs that are timed are those that answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_npubench.engines.probe import probe_weights
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError

DTYPES = {"fp32": np.float32, "fp16": np.float16}


def graph_weights(shape: DecoderShape, dtype: str) -> Any:
    """Returns the tree of probe_weights() in the dtype. Raises ConfigError on one that decoders do not run in."""
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not one that decoders run in on OpenVINO: {', '.join(DTYPES)}")
    return probe_weights(shape, dtype, lambda path, values: values.astype(DTYPES[dtype]))
