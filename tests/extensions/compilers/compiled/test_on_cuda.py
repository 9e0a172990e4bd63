"""XLA's compiler for NVIDIA's GPUs on the decoder and on what is planted in it. It runs without a GPU or a driver.

Skipped unless jax's CUDA plugin is installed (`pip install pytest-npubench[cuda-compiler]`); no test dependency, as
NVIDIA's assembler comes under its own licence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines import engine
from pytest_npubench.engines.binary_facts import BinaryFacts, BinaryRequest
from pytest_npubench.engines.jax_dense.memory import cache_bytes, weight_bytes
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.compilers.compiled.platforms import ENVIRONMENT, described
from pytest_npubench.processes.child import Child, hosted
from pytest_npubench.suites.hardware_files import load_all

from .test_on_libtpu import BATCH_SIZE, BUCKET, GB, SHAPE, Planted

WHY_NOT = engine("compiled").why_not_here("cuda")
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
SPECS = load_all([default_directory()])


class PlantedGpu(Planted):
    """Beside what is planted for a TPU: caches that are read after they are written, or come back in another type."""

    def _lowered(self, request: BinaryRequest, num_devices: int) -> Any:
        from unittest.mock import patch

        from pytest_npubench.engines.jax_dense import forward

        change = {"copy": looked_back, "donation": widened}.get(self._plant)
        if change is None:
            return super()._lowered(request, num_devices)
        with patch.object(forward, "decode", partial(changed_decode, forward.decode, change)):
            return super()._lowered(request, num_devices)


def changed_decode(decode: Callable[..., Any], change: Callable[..., Any], shape: Any, *given: Any, form: Any) -> Any:
    """A decode step whose result goes through `change`, with the state that there was."""
    return change(decode(shape, *given, form=form), given[1])


def looked_back(state: Any, before: Any) -> Any:
    """Old and new caches are needed at once, so the old ones cannot be written in place."""
    import jax.numpy as jnp

    both = sum((jnp.abs(old * new).sum() for old, new in zip(before.caches.keys, state.caches.keys, strict=True)))
    return state._replace(tokens=state.tokens + (both < 0).astype(jnp.int32))


def widened(state: Any, before: Any) -> Any:
    import jax

    return state._replace(caches=jax.tree.map(lambda cache: cache.astype("float32"), state.caches))


def started(folder: Path, plant: str = "", gpu: str = "nvidia-h100", **changes: str) -> Child:
    device = {"family": "cuda", "topology": "1x1x1", "target": described(SPECS[gpu]), **changes}
    arguments = {**device, "folder": str(folder), "memory_bytes": 8 * GB, "plant": plant}
    child = hosted(f"{__name__}:PlantedGpu", arguments, name="the compiler", timeout_s=600.0, environment=ENVIRONMENT)
    child.started()
    return child


Ask = Callable[..., BinaryFacts]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    made: dict[tuple[str, str], Child] = {}

    def ask(plant: str = "", gpu: str = "nvidia-h100", phase: Phase = Phase.DECODE, **changes: Any) -> BinaryFacts:
        if (plant, gpu) not in made:
            made[plant, gpu] = started(tmp_path_factory.mktemp("compiled"), plant, gpu)
        request = BinaryRequest(shape=SHAPE, dtype="bf16", batch_size=BATCH_SIZE, phase=phase, bucket=BUCKET)
        _, found = made[plant, gpu].call("facts", dataclasses.replace(request, **changes), 1)
        assert isinstance(found, BinaryFacts)
        return found

    yield ask
    for child in made.values():
        child.close()


@pytest.mark.parametrize("batch_size", [1, BATCH_SIZE])
@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("gpu", ["nvidia-a100", "nvidia-h100", "nvidia-h200"])
def test_the_decoder_copies_no_cache_and_is_one_module(facts: Ask, gpu: str, phase: Phase, batch_size: int) -> None:
    found = facts(gpu=gpu, phase=phase, batch_size=batch_size)
    assert (found.cache_copies, found.modules, found.cycles) == (0, 1, None)
    assert min(found.aliased_bytes, found.donated_bytes) >= cache_bytes(SHAPE, BUCKET, batch_size, "bf16", 1)
    assert found.code_bytes is not None
    assert found.code_bytes > 10_000
    assert found.reference_cpu_s > 0


def test_bytes_are_those_counted_and_the_same_each_time(facts: Ask) -> None:
    counted = weight_bytes(SHAPE, "bf16", 1) + cache_bytes(SHAPE, BUCKET, BATCH_SIZE, "bf16", 1)
    found, again = facts(), facts("no plant")
    assert found.argument_bytes == pytest.approx(counted, rel=0.001)
    exact = ("argument_bytes", "temporary_bytes", "code_bytes", "module")
    assert [getattr(found, name) for name in exact] == [getattr(again, name) for name in exact]


@pytest.mark.parametrize("batch_size", [1, BATCH_SIZE])
def test_a_cache_that_is_kept_is_copied(facts: Ask, batch_size: int) -> None:
    assert facts("copy", batch_size=batch_size).cache_copies >= 1


def test_a_cache_that_comes_back_in_another_type_is_not_written_in_place(facts: Ask) -> None:
    found = facts("donation")
    assert found.donated_bytes - found.aliased_bytes >= cache_bytes(SHAPE, BUCKET, BATCH_SIZE, "bf16", 1)


def test_a_request_that_is_compiled_in_is_another_module(facts: Ask) -> None:
    assert facts("request").modules == 2


@pytest.mark.parametrize(
    ("changes", "said"), [({"topology": "9x9"}, "topology must be of shape"), ({"target": "x: 1"}, "target_config")]
)
def test_what_xla_does_not_take_is_said(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        started(tmp_path, **changes)
