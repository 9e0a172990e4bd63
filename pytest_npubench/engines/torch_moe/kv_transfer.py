"""Keys and values of one request, out of one executor's cache and into another's (serving/two_devices.py).

What travels is plain host memory with its dims, so that any process can read it: the rows of the request's own tokens,
without the rest of their blocks, and its token ids, by which the receiver can prefill it anew should it be preempted.

Worked number: small-moe in fp32 keeps 8,192 bytes a token, so a prompt of 287 tokens travels as 2.35 MB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytest_npubench.engines.sequences import Sequence
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.errors import MeasurementError

HostBytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKv:
    """token_ids are the prompt and what came after it; of all but the latest one keys and values are there.

    Both have dims [num_layers, tokens, num_kv_heads, head_dim] of `dtype`, kept as bytes: numpy knows no bfloat16.
    """

    token_ids: tuple[int, ...]
    dims: tuple[int, ...]
    dtype: str
    keys: HostBytes
    values: HostBytes

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


def export_kv(sequence: Sequence, cache: PagedKvCache) -> RequestKv:
    """Returns a copy. Raises MeasurementError where the request's next step would not be to decode its latest token."""
    num_tokens = sequence.num_tokens - 1
    if sequence.num_entered != num_tokens:
        raise MeasurementError(
            f"request {sequence.request} has {sequence.num_entered} of {sequence.num_tokens} tokens in the cache; want "
            "all but the latest one, which a request has once its prompt is done"
        )
    slots = _slots(cache, sequence.request, num_tokens)
    return RequestKv(
        token_ids=tuple(sequence.token_ids),
        dims=_dims(cache, num_tokens),
        dtype=str(cache.keys.dtype),
        keys=_to_host(cache.keys[:, slots]),
        values=_to_host(cache.values[:, slots]),
    )


def import_kv(sequence: Sequence, cache: PagedKvCache, kv: object) -> None:
    """The request, begun here with the same prompt, goes on where it was. Nothing changes where this raises.

    Raises MeasurementError for what is no RequestKv, is of another model, dtype or prompt, or finds no room, and for a
    request that has run here.
    """
    kv = _checked(sequence, cache, kv)
    num_tokens = len(kv.token_ids) - 1
    cache.reserve(sequence.request, num_tokens)
    slots = _slots(cache, sequence.request, num_tokens)
    for pool, received in ((cache.keys, kv.keys), (cache.values, kv.values)):
        pool[:, slots] = _from_host(received, kv.dims, pool)
    sequence.token_ids = list(kv.token_ids)
    sequence.num_entered = num_tokens


def _checked(sequence: Sequence, cache: PagedKvCache, kv: object) -> RequestKv:
    where = f"request {sequence.request}"
    if not isinstance(kv, RequestKv):
        raise MeasurementError(f"{where}: {type(kv).__name__} is no keys and values of this engine; want a RequestKv")
    if sequence.num_entered:
        raise MeasurementError(f"{where} has run {sequence.num_entered} tokens here; want none before an import")
    wanted = _dims(cache, len(kv.token_ids) - 1), str(cache.keys.dtype)
    if (kv.dims, kv.dtype) != wanted or {kv.keys.nbytes, kv.values.nbytes} != {_num_bytes(cache, wanted[0])}:
        raise MeasurementError(
            f"{where}: keys and values of {list(kv.dims)} {kv.dtype}, {kv.num_bytes:,} bytes, for "
            f"{len(kv.token_ids)} tokens; want {list(wanted[0])} {wanted[1]} of each"
        )
    if list(kv.token_ids[: sequence.num_tokens]) != sequence.token_ids or len(kv.token_ids) <= sequence.num_tokens:
        raise MeasurementError(f"{where}: the keys and values are of another prompt; want those of the one begun here")
    return kv


def _dims(cache: PagedKvCache, num_tokens: int) -> tuple[int, ...]:
    num_layers, _, *rest = cache.keys.shape
    return (num_layers, num_tokens, *rest)


def _num_bytes(cache: PagedKvCache, dims: tuple[int, ...]) -> int:
    return math.prod(dims) * int(cache.keys.element_size())


def _slots(cache: PagedKvCache, request: int, num_tokens: int) -> Tensor:
    return torch.from_numpy(cache.slots(request, 0, num_tokens)).to(cache.keys.device)


def _to_host(rows: Tensor) -> HostBytes:
    data: HostBytes = rows.contiguous().cpu().view(torch.uint8).numpy()
    return data


def _from_host(data: HostBytes, dims: tuple[int, ...], like: Tensor) -> Tensor:
    writable = np.require(data, requirements="W")  # torch warns of memory that it must not write to
    return torch.from_numpy(writable).view(like.dtype).view(dims).to(like.device)
