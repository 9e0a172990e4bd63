"""Engines compiled once for all tests here, on the host's own processors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from pytest_npubench.backends import backend

IN_TURN: list[Any] = []
with suppress(ModuleNotFoundError):  # without jax there is none, and a file that needs one is skipped
    from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine

    from .decoders import SHAPES, Oracle, mixed_engine, soak_but_first

    IN_TURN = soak_but_first(SHAPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An engine and the oracle of its weights."""

    engine: StaticBucketEngine
    oracle: Oracle


@pytest.fixture(scope="session")
def runtime() -> Any:
    cpu = backend("cpu")
    return cpu.open(cpu.probe(timeout_s=60).devices, None)


@pytest.fixture(scope="session")
def serve(runtime: Any) -> Callable[[str], Served]:
    """The engine of one of SHAPES by name; a bucket is compiled when a test first needs it."""

    @cache
    def build(name: str) -> Served:
        engine = mixed_engine(SHAPES[name], runtime)
        return Served(engine=engine, oracle=Oracle(engine))

    return build


@pytest.fixture(scope="session", params=IN_TURN)
def served(request: pytest.FixtureRequest, serve: Callable[[str], Served]) -> Served:
    """Each of SHAPES in turn."""
    return serve(request.param)
