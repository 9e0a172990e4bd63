"""The decoder beside a second library: transformers' Llama and Qwen3 on the same weights give the same tokens.

Skipped unless torch and transformers are installed; the float64 oracle beside this file always runs.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from small_decoders import small_decoder  # noqa: E402

from pytest_npubench.backends import backend  # noqa: E402 - after the skips above
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine  # noqa: E402
from pytest_npubench.engines.shapes import DecoderShape, RopeScaling  # noqa: E402

from .decoders import soak_but_first  # noqa: E402
from .hugging_face import model_with  # noqa: E402

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
BUCKETS = (16, 32, 64)
LLAMA = small_decoder(
    "oracle-llama",
    vocab_size=97,
    num_layers=3,
    num_heads=8,
    head_dim=8,
    rope_theta=500_000.0,
    rope_scaling=RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=32),
)
QWEN = small_decoder(
    "oracle-qwen",
    vocab_size=101,
    hidden=48,
    num_kv_heads=4,
    intermediate=80,
    rope_theta=1_000_000.0,
    rms_eps=1e-6,
    qk_norm=True,
    tied_embeddings=False,
)


@pytest.mark.parametrize("shape", soak_but_first([LLAMA, QWEN]), ids=lambda shape: shape.name)
def test_same_tokens_as_transformers(shape: DecoderShape) -> None:
    host = backend("cpu")
    engine = StaticBucketEngine(shape, host.open(host.probe(1).devices, None), buckets=BUCKETS, batch_size=3, seed=5)
    model = model_with(shape, engine.weights)
    generator = np.random.default_rng(3)
    prompts = [generator.integers(0, shape.vocab_size, length, dtype=np.int32) for length in (15, 16, 17)]
    tokens = engine.generate(prompts, [20, 35, 4]).tokens
    for prompt, produced in zip(prompts, tokens, strict=True):
        with torch.no_grad():
            expected = model.generate(
                torch.tensor(prompt[None].astype(np.int64)), max_new_tokens=len(produced), do_sample=False
            )
        assert produced == tuple(expected[0, len(prompt) :].tolist())
