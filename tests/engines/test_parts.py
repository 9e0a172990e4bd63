"""Operators alone and traced kernels of the reference decoder, against what XLA counts of the whole steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import pytest

from pytest_npubench.core.measurement import Phase
from pytest_npubench.core.parts import OPERATORS, Part
from pytest_npubench.errors import MeasurementError

jax = pytest.importorskip("jax")
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine  # noqa: E402
from pytest_npubench.engines.jax_dense.parts import kernels_s  # noqa: E402
from pytest_npubench.engines.shapes import dense_shape  # noqa: E402

SHAPE = replace(dense_shape("tiny-llama"), name="parts", num_layers=3, vocab_size=512)
BUCKETS = (64, 128)


class Counting:
    """The runtime's compiler, which keeps what XLA counts of each binary."""

    def __init__(self, runtime: Any) -> None:
        self._runtime, self.flops = runtime, dict[str, float]()

    @property
    def devices(self) -> Any:
        return self._runtime.devices

    @property
    def compiles(self) -> Any:
        return self._runtime.compiles

    def compile(self, name: str, *arguments: Any, **options: Any) -> Any:
        compiled = self._runtime.compile(name, *arguments, **options)
        counted = compiled.cost_analysis()
        self.flops[name] = (counted[0] if isinstance(counted, list) else counted).get("flops", 0.0)
        return compiled


@pytest.fixture(scope="module")
def compiler(runtime: Any) -> Counting:
    return Counting(runtime)


@pytest.fixture(scope="module")
def engine(compiler: Counting) -> StaticBucketEngine:
    return StaticBucketEngine(SHAPE, compiler, buckets=BUCKETS, batch_size=4)


@pytest.mark.parametrize("bucket", BUCKETS)
@pytest.mark.parametrize("phase", Phase)
def test_operators_are_all_that_a_step_computes(
    phase: Phase, bucket: int, engine: StaticBucketEngine, compiler: Counting
) -> None:
    engine.load((bucket,))
    assert engine.parts is not None
    total = 0.0
    for operator in OPERATORS:
        part = Part(phase=phase, bucket=bucket, operator=operator)
        engine.parts.load(part)
        assert engine.parts.time(part) > 0
        assert engine.parts.time(part) > 0  # its caches came back
        total += compiler.flops[part.name] * (1 if operator in ("embed", "head") else SHAPE.num_layers)
    assert total == pytest.approx(compiler.flops[f"{phase.value}-parts-b4-{bucket}"], rel=0.02)


@pytest.mark.parametrize("phase", Phase)
def test_kernels_of_a_step_are_traced_and_it_runs_on(phase: Phase, engine: StaticBucketEngine) -> None:
    part = Part(phase=phase, bucket=BUCKETS[0])
    assert engine.parts is not None
    engine.parts.load(part)
    assert engine.parts.time(part) > 0
    assert engine.parts.time(part) > 0


def test_kernels_add_up_with_the_calls(runtime: Any) -> None:
    """Ten calls have ten times the kernels of one, a loop's own event none beside those of its body."""
    import jax.numpy as jnp

    matrix = jax.device_put(jnp.ones((512, 512)))
    run = jax.jit(lambda one: one @ one).lower(matrix).compile()
    body = jax.jit(lambda one: jax.lax.fori_loop(0, 10, lambda _, held: held @ one, one)).lower(matrix).compile()

    def share(call: Callable[[], object]) -> float:
        """Of the very seconds that the call took, so that a slow machine is on both sides."""
        took_s: list[float] = []

        def timed() -> None:
            start_s = perf_counter()
            call()
            took_s.append(perf_counter() - start_s)

        return kernels_s(timed) / sum(took_s)

    one = share(lambda: run(matrix).block_until_ready())
    ten = share(lambda: [run(matrix).block_until_ready() for _ in range(10)])
    looped = share(lambda: body(matrix).block_until_ready())
    assert max(one, ten) < 1.2
    assert ten > 0.25, "kernels of one call of ten would be a tenth"
    assert 0.25 < looped < 1.4, "the loop counted beside its body would be twice"


def test_a_call_without_kernels_says_so() -> None:
    with pytest.raises(MeasurementError, match="names no kernels"):
        kernels_s(lambda: None)
