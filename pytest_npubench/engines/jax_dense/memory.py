"""What the decoder keeps on each device while it runs: its weights, and the KV cache of every bucket that is loaded.

Counted from the shape alone, without jax and without a device, so that a campaign can be refused before anything is
compiled. Binaries and their temporary buffers come on top: only a compiler knows those.

Worked numbers, bf16, 4 devices, batch 8: llama-3.2-1b has 2.47 GB of weights, 618 MB a device (135 kB of it norms, as
each device holds them whole), and 8 rows x 4096 positions x 32,768 bytes = 1.07 GB of cache in bucket 4096, 268 MB a
device.
"""

from __future__ import annotations

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError

DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
SPLIT_DIMENSIONS = ("num_heads", "num_kv_heads", "intermediate", "vocab_size")


def check_tensor_parallel(shape: DecoderShape, num_devices: int) -> None:
    """Raise ConfigError naming the first dimension that does not split evenly over the devices."""
    for name in SPLIT_DIMENSIONS:
        if num_devices < 1 or getattr(shape, name) % num_devices:
            raise ConfigError(
                f"{shape.name}: {name} = {getattr(shape, name)} does not split over {num_devices} devices; "
                "take a number of devices that divides it"
            )


def weight_bytes(shape: DecoderShape, dtype: str, num_devices: int = 1) -> int:
    """Bytes of weights on each of the devices: matrices split evenly, norms whole on every one.

    Raises ConfigError for a dtype the decoder does not compute in, or a number of devices it does not split over.
    """
    check_tensor_parallel(shape, num_devices)
    num_whole = shape.num_layers * shape.norm_parameters_per_layer + shape.hidden
    return ((shape.num_parameters - num_whole) // num_devices + num_whole) * _dtype_bytes(dtype)


def cache_bytes(shape: DecoderShape, bucket: int, batch_size: int, dtype: str, num_devices: int = 1) -> int:
    """Bytes of one bucket's keys and values on each of the devices, which share the key-value heads.

    Raises ConfigError as weight_bytes() does.
    """
    check_tensor_parallel(shape, num_devices)
    return batch_size * bucket * shape.kv_bytes_per_token(_dtype_bytes(dtype)) // num_devices


def _dtype_bytes(dtype: str) -> int:
    if dtype not in DTYPE_BYTES:
        raise ConfigError(f"dtype {dtype!r} is not one the decoder computes in: {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]
