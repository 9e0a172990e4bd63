"""Engines on OpenVINO's CPU plugin, each with the jax engine whose weights it has and the oracle of both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from engines.conftest import Served
from pytest_npubench.backends import backend

IN_TURN: list[Any] = []
with suppress(ModuleNotFoundError):  # without jax a file that needs its engine is skipped
    from engines.decoders import BATCH_SIZE, BUCKETS, SHAPES, soak_but_first

    IN_TURN = soak_but_first(SHAPES)

WHY = "openvino is not installed: pip install pytest-npubench[openvino]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """OpenVINO's engine, and jax's with its oracle."""

    engine: Any
    served: Served


@pytest.fixture(scope="session")
def cpu_plugin() -> Any:
    pytest.importorskip("openvino", reason=WHY)
    probe = backend("openvino").probe(timeout_s=60)
    return backend("openvino").open(probe.devices[-1:], None)


@pytest.fixture(scope="session")
def make_twins(cpu_plugin: Any, serve: Callable[[str], Served]) -> Callable[[str], Twins]:
    """With the weights of decoders.mixed(): as they come, random ones answer with the prompt's last token for ever."""
    import jax

    from pytest_npubench.engines.openvino_dense.engine import OpenVinoBucketEngine

    @cache
    def build(name: str) -> Twins:
        served = serve(name)
        engine = OpenVinoBucketEngine(SHAPES[name], cpu_plugin, buckets=BUCKETS, batch_size=BATCH_SIZE)
        engine.weights = jax.tree.map(np.array, served.engine.weights)
        return Twins(engine=engine, served=served)

    return build


@pytest.fixture(scope="session", params=IN_TURN)
def twins(request: pytest.FixtureRequest, make_twins: Callable[[str], Twins]) -> Twins:
    """Each of SHAPES in turn."""
    return make_twins(request.param)
