"""The reference decoder's seeded weights as numpy arrays, so that both decoders answer alike.

jax makes them on the host, from the same seed and in the same dtype as engines/jax_dense does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError, MeasurementError

DTYPES = {"fp32": np.float32, "fp16": np.float16}


def seeded_weights(shape: DecoderShape, dtype: str, seed: int) -> Any:
    """The tree of random_weights. Raises ConfigError on another dtype, MeasurementError where jax is not installed."""
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not one that decoders run in on OpenVINO: {', '.join(DTYPES)}")
    try:
        import jax
    except ImportError as error:
        raise MeasurementError("the decoder's weights are made by jax, which is not installed") from error
    with jax.default_device(jax.devices("cpu")[0]):
        made = _maker(shape, dtype)(np.uint32(seed))
    return jax.tree.map(np.array, made)  # copies: OpenVINO takes no read-only array


@cache
def _maker(shape: DecoderShape, dtype: str) -> Callable[[np.uint32], Any]:
    """Traced and compiled once, for all seeds."""
    import jax

    from pytest_npubench.engines.jax_dense.weights import random_weights

    make: Callable[[np.uint32], Any] = jax.jit(partial(random_weights, shape, dtype=DTYPES[dtype]))
    return make
