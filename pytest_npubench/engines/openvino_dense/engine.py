"""The reference decoder on a device of OpenVINO: one prefill and one decode binary per bucket and batch size.

It serves as engines/jax_dense does (static_buckets.py), on the weights of engines/probe.py; where the cache moves the
host copies it. Every step is an asynchronous request that is waited for, and its tokens are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pytest_npubench.core.buckets import check_buckets
from pytest_npubench.core.measurement import CompileRecord
from pytest_npubench.engines.answer_walk import AnsweringBuckets
from pytest_npubench.engines.answers import Logits
from pytest_npubench.engines.openvino_dense.binaries import BucketBinaries
from pytest_npubench.engines.openvino_dense.canaries import OpenVinoCanaries
from pytest_npubench.engines.openvino_dense.weights import graph_weights
from pytest_npubench.engines.probe import NUM_FIXED
from pytest_npubench.engines.protocol import Canaries, Compiler
from pytest_npubench.engines.request_batch import Prompt
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError


class OpenVinoBucketEngine(AnsweringBuckets):
    """See the module. Raises ConfigError for a bucket set, batch size or dtype the decoder cannot have."""

    name = "openvino-dense"

    def __init__(
        self,
        shape: DecoderShape,
        compiler: Compiler,
        *,
        buckets: Sequence[int],
        batch_size: int,
        dtype: str = "fp32",
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; want at least 1")
        self.shape = shape
        self.buckets = check_buckets(buckets)
        self.batch_size = batch_size
        self.compiles: Sequence[CompileRecord] = ()
        self.canaries: Canaries | None = OpenVinoCanaries(compiler)
        self._compiler = compiler
        self._seed = seed
        self._weights = graph_weights(shape, dtype)
        self._binaries: dict[int, BucketBinaries] = {}
        self._logits: Callable[[], Any] = lambda: ()  # of what ran last: read where a check asks for them

    def load(self, buckets: Sequence[int]) -> None:
        """Compile prefill and decode of each bucket; a move needs no binary, for the host copies."""
        for bucket in buckets:
            if bucket not in self.buckets:
                raise ConfigError(f"bucket {bucket} is not in the engine's set {self.buckets}")
            if bucket not in self._binaries:
                binaries = BucketBinaries(
                    self.shape, self._compiler, self._weights, bucket=bucket, batch_size=self.batch_size
                )
                self._binaries[bucket] = binaries
                self.compiles = (*self.compiles, *binaries.compiles)

    def begin(self, bucket: int) -> None:
        self._tokens, self._lengths = np.zeros(self.batch_size, np.int32), np.zeros(self.batch_size, np.int32)

    def prefill_row(self, bucket: int, row: int, prompt: Prompt) -> Prompt:
        binaries = self._binaries[bucket]
        self._tokens[row] = binaries.prefill(prompt, row, self.padding_token)
        self._lengths[row] = len(prompt)
        self._logits = lambda: np.broadcast_to(binaries.prefill_logits, (self.batch_size, NUM_FIXED))
        return self._tokens

    def decode_step(self, bucket: int) -> Prompt:
        binaries = self._binaries[bucket]
        self._tokens = binaries.decode(self._tokens, self._lengths)
        self._lengths += 1
        self._logits = lambda: binaries.decode_logits
        return self._tokens

    def force(self, tokens: Prompt, lengths: Prompt | None = None) -> None:
        self._tokens = np.array(tokens, np.int32)
        if lengths is not None:
            self._lengths = np.array(lengths, np.int32)

    def fixed_logits(self) -> Logits:
        """Behind a prefill every row has that prompt's."""
        return np.array(self._logits(), np.float64)

    @contextmanager
    def probe_weights(self) -> Iterator[tuple[None, None]]:
        """They are the engine's own: constants of its graphs, whose bits the device does not tell."""
        yield None, None

    def move_caches(self, bucket: int, neighbour: int) -> None:
        self._binaries[bucket].copy_into(self._binaries[neighbour])

    def end(self, bucket: int) -> None:
        """Nothing: the caches are the binaries' own."""
