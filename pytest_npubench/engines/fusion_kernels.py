"""A matrix product, the operator that follows it, and both compiled together (LENS, section 3.2 and Fig. 3).

    matmul       y = a b, a [rows, inner], b [inner, rows]
    add, mul     y + c, y c, with c [rows, rows]
    silu         y / (1 + exp(-y))
    chain        silu(y + c) d: the three in a row

The inner size is small against the rows, so that the operator is a good part of the product. Traffic is counted in
matrices of [rows, rows]: a product writes one, the operators alone read and write ALONE[...] of them, and where the
compiler keeps y on the chip TOGETHER[...] are left.

Worked number: add alone reads y and c and writes the sum, 3 matrices; beside its product only c is read, 1: keeping y
on the chip saves 2/3 of add's traffic, and all of silu's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_npubench.engines.protocol import Compiler

PREFIX = "fusion-"
MATMUL = "matmul"
OPERATORS = ("add", "mul", "silu", "chain")
ALONE = {"add": 3, "mul": 3, "silu": 2, "chain": 8}
TOGETHER = {"add": 1, "mul": 1, "silu": 0, "chain": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionSizes:
    rows: int
    inner: int
    dtype: str


HOST = FusionSizes(rows=2048, inner=32, dtype="float32")  # 17 MB a matrix: more than a core's own cache
ACCELERATOR = FusionSizes(rows=8192, inner=1024, dtype="bfloat16")


def traffic_share(operator: str) -> float:
    """The share of an operator's traffic that need not be moved where the product's result stays on the chip."""
    return (ALONE[operator] - TOGETHER[operator]) / ALONE[operator]


def kernels_of(operator: str) -> tuple[str, str, str]:
    """The product, the operator, and both, by the names under which they run."""
    return f"{PREFIX}{MATMUL}", f"{PREFIX}{operator}", f"{PREFIX}{MATMUL}-{operator}"


def fusion_call(kernel: str, compiler: Compiler, sharding: Any) -> Callable[[], None]:
    """Compiled ahead of time, its inputs on the devices: one run, waited for. A chain alone runs as three binaries."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    size = HOST if sharding.mesh.devices.flat[0].platform == "cpu" else ACCELERATOR
    random = np.random.default_rng(0)

    def matrix(*dims: int) -> Any:
        return jax.device_put(random.standard_normal(dims, np.float32).astype(jnp.dtype(size.dtype)), sharding)

    left, right = matrix(size.rows, size.inner), matrix(size.inner, size.rows)
    y, c, d = (matrix(size.rows, size.rows) for _ in range(3))
    follow: dict[str, tuple[Callable[..., Any], ...]] = {
        "add": (jnp.add,),
        "mul": (jnp.multiply,),
        "silu": (jax.nn.silu,),
        "chain": (jnp.add, jax.nn.silu, jnp.multiply),
    }
    others: dict[str, tuple[tuple[Any, ...], ...]] = {
        "add": ((c,),),
        "mul": ((c,),),
        "silu": ((),),
        "chain": ((c,), (), (d,)),
    }

    def compiled(name: str, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        run = compiler.compile(name, function, *arguments, out=sharding)
        return lambda: run(*arguments)

    product, _, operator = kernel.removeprefix(PREFIX).partition("-")
    if product == MATMUL:
        steps, extra = follow.get(operator, ()), others.get(operator, ())
        flat = [one for row in extra for one in row]

        def together(left: Any, right: Any, *given: Any) -> Any:
            result, rest = jnp.matmul(left, right), list(given)
            for step, row in zip(steps, extra, strict=True):
                result = step(result, *(rest.pop(0) for _ in row))
            return result

        runs = [compiled(kernel, together, left, right, *flat)]
    else:
        runs = [
            compiled(f"{kernel}-{index}", step, y, *row)
            for index, (step, row) in enumerate(zip(follow[product], others[product], strict=True))
        ]

    def call() -> None:
        for run in runs:
            jax.block_until_ready(run())  # and let go of: to hold all results would measure the system's pages

    return call
