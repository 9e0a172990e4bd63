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
from pytest_npubench.engines.openvino_dense import graphs
from pytest_npubench.engines.openvino_dense.canaries import OpenVinoCanaries
from pytest_npubench.engines.openvino_dense.graphs import Weights, graph_weights
from pytest_npubench.engines.probe import NUM_FIXED
from pytest_npubench.engines.protocol import Canaries, Compiler
from pytest_npubench.engines.request_batch import Prompt
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.plain_text import last_line

Tokens = np.ndarray[Any, np.dtype[np.int32]]


class BucketBinaries:
    """One bucket on the device: its prefill and decode requests, and the KV cache that lies in the decode request.

    # N = compiled batch size, b = bucket, K = key-value heads, D = head_dim, L = layers
    The tensors are the plugin's, allocated once where the device reads them; the host sees them as arrays and writes
    into them. Pad positions behind a prompt hold keys nobody sees: a row attends to positions before its own only, and
    overwrites them as it grows. Raises MeasurementError where a graph does not compile, or memory is short.
    """

    def __init__(
        self, shape: DecoderShape, compiler: Compiler, weights: Weights, *, bucket: int, batch_size: int
    ) -> None:
        label = f"{shape.name}-b{batch_size}-{bucket}"
        prefill: Any = compiler.compile(f"prefill-{label}", lambda: graphs.prefill(shape, weights, bucket).model())
        decode: Any = compiler.compile(
            f"decode-{label}", lambda: graphs.decode(shape, weights, batch_size, bucket).model()
        )
        self.bucket = bucket
        self.compiles = tuple(compiler.compiles[-2:])
        self._rows = np.arange(batch_size)
        try:
            self._prefill, self._decode = prefill.create_infer_request(), decode.create_infer_request()
            self._prompt, self._length = (self._prefill.get_input_tensor(index).data for index in range(2))
            self._tokens, self._lengths = (self._decode.get_input_tensor(index).data for index in range(2))
            caches = [self._decode.get_input_tensor(2 + index).data for index in range(2 * shape.num_layers)]
            for cache in caches:
                cache[...] = 0
        except RuntimeError as error:
            raise MeasurementError(
                f"{label}: no memory for its tensors: {last_line(str(error), type(error).__name__)}"
            ) from error
        self._caches = caches

    def prefill(self, prompt: Tokens, row: int, padding: int = 0) -> int:
        """Run one prompt, write its keys and values into `row` of the cache. Returns the token that follows it."""
        self._prompt[0, : len(prompt)] = prompt
        self._prompt[0, len(prompt) :] = padding
        self._length[0] = len(prompt)
        _run(self._prefill)
        keys_values = self._prefill.get_output_tensor(1).data
        for cache, new in zip(self._caches, keys_values.reshape(-1, *keys_values.shape[2:]), strict=True):
            cache[row] = new
        return int(self._prefill.get_output_tensor(0).data[0])

    def decode(self, tokens: Tokens, lengths: Tokens) -> Tokens:
        """Writes each row's last token [N] at its length [N] where it has room. Returns the next tokens [N]."""
        self._tokens[:], self._lengths[:] = tokens, lengths
        _run(self._decode)
        keys_values = self._decode.get_output_tensor(1).data
        rows = self._rows[lengths < self.bucket]
        places = lengths[rows]
        for cache, new in zip(self._caches, keys_values.reshape(-1, *keys_values.shape[2:]), strict=True):
            cache[rows, :, places] = new[rows]
        return np.array(self._decode.get_output_tensor(0).data, np.int32)

    @property
    def prefill_logits(self) -> Any:
        """Fixed logits of the prompt that ran last, float32 [NUM_FIXED]."""
        return self._prefill.get_output_tensor(2).data[0]

    @property
    def decode_logits(self) -> Any:
        """Fixed logits of the last step, float32 [N, NUM_FIXED]."""
        return self._decode.get_output_tensor(2).data

    def copy_into(self, neighbour: BucketBinaries) -> None:
        """Copies the batch's keys and values, at its positions, into the cache of another bucket."""
        length = min(self.bucket, neighbour.bucket)
        for target, source in zip(neighbour._caches, self._caches, strict=True):
            target[:, :, :length] = source[:, :, :length]


def _run(request: Any) -> None:
    """Start, and wait for the end. Raises MeasurementError with OpenVINO's reason."""
    try:
        request.start_async()
        request.wait()
    except RuntimeError as error:
        raise MeasurementError(f"the device did not finish: {last_line(str(error), type(error).__name__)}") from error


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
        weights: Any = None,
    ) -> None:
        """weights: the host's, of an engine of the same shape and dtype that this one shares; None: it makes its
        own."""
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; want at least 1")
        self.shape = shape
        self.buckets = check_buckets(buckets)
        self.batch_size = batch_size
        self.compiles: Sequence[CompileRecord] = ()
        self.canaries: Canaries | None = OpenVinoCanaries(compiler)
        self._compiler = compiler
        self._seed = seed
        self.weights = graph_weights(shape, dtype) if weights is None else weights
        self._binaries: dict[int, BucketBinaries] = {}
        self._logits: Callable[[], Any] = lambda: ()  # of what ran last: read where a check asks for them

    def load(self, buckets: Sequence[int]) -> None:
        """Compile prefill and decode of each bucket; a move needs no binary, for the host copies."""
        for bucket in buckets:
            if bucket not in self.buckets:
                raise ConfigError(f"bucket {bucket} is not in the engine's set {self.buckets}")
            if bucket not in self._binaries:
                binaries = BucketBinaries(
                    self.shape, self._compiler, self.weights, bucket=bucket, batch_size=self.batch_size
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

    def start_step(self, bucket: int) -> Callable[[], Prompt]:
        """Runs the step to its end: the next one takes its tokens from the host."""
        binaries = self._binaries[bucket]
        tokens = self._tokens = binaries.decode(self._tokens, self._lengths)
        self._lengths += 1
        self._logits = lambda: binaries.decode_logits
        return lambda: tokens

    def force(self, tokens: Prompt, lengths: Prompt | None = None) -> None:
        self._tokens = np.array(tokens, np.int32)
        if lengths is not None:
            self._lengths = np.array(lengths, np.int32)

    def fixed_logits(self) -> Logits:
        """Returns the fixed logits; behind a prefill every row has that prompt's."""
        return np.array(self._logits(), np.float64)

    @contextmanager
    def probe_weights(self) -> Iterator[tuple[None, None]]:
        """They are the engine's own: constants of its graphs, whose bits the device does not tell."""
        yield None, None

    def move_caches(self, bucket: int, neighbour: int) -> None:
        self._binaries[bucket].copy_into(self._binaries[neighbour])

    def end(self, bucket: int) -> None:
        """Does nothing: the caches are the binaries' own."""
