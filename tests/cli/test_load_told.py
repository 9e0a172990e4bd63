"""npubench load: what it tells of a server beside its figures, and clocks that it does not look at."""

from __future__ import annotations

import sys
import time

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install pytest-npubench[http]")

from aiohttp import web
from campaign.server.stand_in import StandIn, refuses
from known_answer import KnownAnswer

from pytest_npubench.core import clock

from .test_load import KNOWN, SLO, load  # noqa: F401 - a fixture


@pytest.mark.parametrize(("num_refused", "status"), [(1, 0), (2, 0), (99, 2)])
def test_a_refused_request_ahead_is_told_and_the_load_goes_on(load, num_refused, status):  # noqa: F811
    """Where all that are measured are refused as well, their reason stands."""

    async def busy(number, request):
        return await refuses(429, "quota of m spent")(number, request) if number < num_refused else None

    stand_in = StandIn(known=KNOWN, fault=busy)
    answer = load(stand_in, "--warmup", 1)
    assert (answer.status, len(stand_in.bodies)) == (status, 9)
    _, ahead, *_ = lines = answer.err.splitlines()
    assert ahead.startswith("npubench: warning: a request ahead of the load failed: ")
    assert "HTTP 429 Too Many Requests" in ahead
    assert "quota of m spent" in ahead
    assert status == 0 or "no request was answered: 8 of 8: HTTP 429 (HTTP 429 Too Many Requests" in lines[-1]
    assert status == 2 or ("failed     1 HTTP 429" if num_refused == 2 else "failed     none") in answer.out


class Counted(StandIn):
    """Tells at /metrics how many requests came."""

    def application(self):
        async def metrics(request):
            return web.Response(text=f"vllm:num_preemptions_total {len(self.bodies)}\nvllm:num_requests_running 2\n")

        app = super().application()
        app.router.add_get("/metrics", metrics)
        return app


def test_a_sweep_has_the_servers_own_figures_at_each_rate(load):  # noqa: F811
    """Each rate is a block of eight, and this server counts eight while it lasts."""
    known = KnownAnswer(ttft_s=0.01, itl_s=0.0)
    rates = load(Counted(known=known), "--sweep", *SLO, "--json", rate=None).json["rates"]
    assert [row["server_says"]["num_preemptions"] for row in rates] == [8.0] * len(rates)
    assert {row["server_says"]["running_most"] for row in rates} == {2.0}
    lines = load(Counted(known=known), "--sweep", *SLO, rate=None).out.splitlines()
    own = [line for line in lines if line.startswith("its own    at ")]
    assert len(own) == len(rates)
    assert all(line.endswith(" requests/s 2 running (2 at most), 8 preemptions") for line in own)
    assert "its own    no /metrics: HTTP 404" in load(StandIn(known=known), "--sweep", *SLO, rate=None).out.splitlines()


def test_a_wall_clock_that_jumps_within_a_load_is_in_no_figure(load, monkeypatch):  # noqa: F811
    """Each request that comes sets the date a day on, or back."""
    day_s, shift_s, true = 86_400.0, [0.0], time.time
    clocks = {id(time.time), id(clock.wall_s)}
    for module in [module for name, module in sys.modules.items() if name == "time" or "npubench" in name]:
        for name, value in list(vars(module).items()):
            if id(value) in clocks:
                monkeypatch.setattr(module, name, lambda: true() + shift_s[0])

    async def jumps(number, request):
        shift_s[0] = day_s if number % 2 else -day_s

    began_s = time.monotonic()
    answer = load(StandIn(known=KNOWN, fault=jumps), *SLO, "--json")
    took_s = time.monotonic() - began_s
    assert abs(time.time() - true()) > day_s / 2, "it jumped"
    metrics = {metric["name"]: metric for metric in answer.json["metrics"]}
    seconds = [metric["value"] for metric in metrics.values() if metric["unit"] == "s" and metric["value"] is not None]
    assert len(seconds) > 10
    assert all(0 <= value < took_s for value in (*seconds, answer.json["client"]["dispatch_lag_p99_s"]))
    assert metrics["ttft_p50_s"]["value"] >= KNOWN.ttft_s
    assert answer.status == 0
