"""A plan of one load on a server, and stand-ins of servers that end with the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from made_records import trace_of

from pytest_npubench import workloads
from pytest_npubench.backends import backend
from pytest_npubench.backends.server import ServerRuntime
from pytest_npubench.core.case import Case
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.server.plan import ServerPlan
from pytest_npubench.suites.server.spec import Asking, ServerLoad, ServerSize, ServerSpec, WorkloadRates
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import JudgedCase, Judgement

with suppress(ModuleNotFoundError):  # without aiohttp a file that needs it is skipped
    from .stand_in import StandIn

SPEC = load_all([default_directory()])["openai-server"]
LOAD = ServerLoad(workload="short-chats", rate_per_s=100.0)
RATES = WorkloadRates(workload=LOAD.workload, rates_per_s=(LOAD.rate_per_s,))
LENGTHS = ((5, 4), (9, 3), (14, 5), (20, 2))
NUM_REQUESTS = 6


@pytest.fixture(autouse=True)
def short_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload of short requests."""
    monkeypatch.setitem(workloads._registered, LOAD.workload, trace_of(LOAD.workload, LENGTHS))


@pytest.fixture
def plan() -> ServerPlan:
    return server_plan()


def server_plan(*, slo: tuple[float, float] | None = (2.0, 1.0), attainment: float = 0.9, **asking: Any) -> ServerPlan:
    size = ServerSize(
        name="quick",
        workloads=(LOAD.workload,),
        num_requests=NUM_REQUESTS,
        min_rounds=2,
        max_rounds=2,
        budget_s=1.0,
    )
    server = ServerSpec(asking=Asking(**asking), attainment=attainment, rates=(RATES,), profiles=(size,))
    slos = () if slo is None else (replace(SPEC.slos[0], ttft_s=slo[0], tbt_s=slo[1]),)
    return ServerPlan(spec=replace(SPEC, sections=(server,), slos=slos), server=server, size=size)


def read_back(case: Case, judgement: Judgement) -> Cases:
    """The case as reports read it from a journal."""
    record = JudgedCase(
        case=case,
        digest="0123456789ab",
        node_id="test_server",
        device="server:0",
        fingerprint=None,
        duration_s=1.0,
        campaign="c",
        judgement=judgement,
    ).to_json()
    return Cases.read([json.loads(json.dumps(record))])


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ServerRuntime]]:
    """runtime(stand_in) opens the model that the stand-in serves, by the way that the plugin takes."""
    servers = []

    def opened(stand_in: StandIn) -> ServerRuntime:
        servers.append(stand_in.start())
        monkeypatch.setenv("NPUBENCH_SERVER_URL", servers[-1].url)
        (device,) = backend("server").probe(10.0).devices
        found = backend("server").open((device,), None)
        assert isinstance(found, ServerRuntime)
        return found

    yield opened
    for server in servers:
        server.stop()
