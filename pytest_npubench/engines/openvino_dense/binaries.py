"""One bucket on the device: its prefill and decode requests, and the KV cache that lies in the decode request.

# N = compiled batch size, b = bucket, K = key-value heads, D = head_dim, L = layers
The tensors are the plugin's own, allocated once where the device reads them; the host sees them as arrays and writes
into them. Pad positions behind a prompt hold keys nobody sees: a row attends to positions before its own only, and
overwrites them as it grows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_npubench.engines.openvino_dense import graphs
from pytest_npubench.engines.openvino_dense.graphs import Weights
from pytest_npubench.engines.protocol import Compiler
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import MeasurementError

Tokens = np.ndarray[Any, np.dtype[np.int32]]


class BucketBinaries:
    """Compiles both graphs of a bucket. Raises MeasurementError where one does not compile, or memory is short."""

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
            raise MeasurementError(f"{label}: no memory for its tensors: {_last_line(error)}") from error
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
        """Write each row's last token [N] at its length [N], of those that have room. Returns the next tokens [N]."""
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
        """Move the batch's keys and values into the cache of another bucket, those of its positions alone."""
        length = min(self.bucket, neighbour.bucket)
        for target, source in zip(neighbour._caches, self._caches, strict=True):
            target[:, :, :length] = source[:, :, :length]


def _run(request: Any) -> None:
    """Start, and wait for the end. Raises MeasurementError with OpenVINO's reason."""
    try:
        request.start_async()
        request.wait()
    except RuntimeError as error:
        raise MeasurementError(f"the device did not finish: {_last_line(error)}") from error


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
