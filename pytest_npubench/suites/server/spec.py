"""The server part of a hardware file: how an OpenAI-compatible server is asked, and under which loads.

Such a file describes no device: what is behind the server can be neither seen nor chosen. [server] says which API and
which prompts are used and what fails a request; each [[server.load]] is a workload with the rates at which its requests
arrive, one case each; [server.profile.*] says what a run of that profile does. Limits on latency are [[slo]] entries.

Worked example: workload "layered-sharegpt" with rates_per_s = [1, 2.5] makes the cases layered-sharegpt-r1 and
layered-sharegpt-r2.5.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from pytest_npubench.core.hardware import PROFILES
from pytest_npubench.core.toml_table import TomlTable, listed

APIS = ("completions", "chat")
PROMPTS = ("tokens", "words")
FIRST_TOKEN, LAST_TOKEN = 100, 999
"""Ids of plain tokens in every vocabulary met so far: special ones stand before them or at the end."""

SERVER_KEYS = (
    "api",
    "prompt",
    "token_ids",
    "extra_body",
    "max_total_tokens",
    "attainment",
    "connect_timeout_s",
    "idle_timeout_s",
    "answer_timeout_s",
    "load",
    "profile",
)
OURS = ("model", "prompt", "messages", "max_tokens", "stream", "stream_options")
"""Fields of a request that extra_body may not change: the measurement rests on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """A workload, and how many of its requests arrive a second."""

    workload: str
    rate_per_s: float

    @property
    def rate_name(self) -> str:
        """As it stands in a case's id: r2.5."""
        return f"r{self.rate_per_s:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSize:
    """What a profile runs: num_requests arrive in one block, a round serves a block of every load."""

    name: str
    workloads: tuple[str, ...]
    num_requests: int
    min_rounds: int
    max_rounds: int
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How requests are put to a server; times in seconds.

    token_ids: first and last id that prompts of token ids are drawn from. extra_body is merged into every request.
    max_total_tokens: the longest prompt and answer together; a server with a shorter context has less.
    answer_timeout_s: None for what engines.http.client derives from the tokens asked for.
    """

    api: str = "completions"
    prompt: str = "tokens"
    token_ids: tuple[int, int] = (FIRST_TOKEN, LAST_TOKEN)
    extra_body: Mapping[str, object] = field(default_factory=lambda: {"ignore_eos": True})
    max_total_tokens: int = 16_384
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 60.0
    answer_timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """How a server is asked, under which loads, and the share of arrived requests that must attain their SLO."""

    asking: Asking
    attainment: float
    loads: tuple[ServerLoad, ...]
    profiles: tuple[ServerSize, ...]

    def size(self, profile: str) -> ServerSize:
        return next(size for size in self.profiles if size.name == profile)


def read_server(root: TomlTable) -> ServerSpec:
    """The [server] table. Raises HardwareFileError naming the file, the dotted key and what is allowed."""
    table = root.table("server", SERVER_KEYS)
    loads = _loads(table)
    return ServerSpec(
        asking=_asking(table),
        attainment=table.number("attainment", at_most=1, default=0.9),
        loads=loads,
        profiles=_sizes(table.table("profile", PROFILES), tuple(dict.fromkeys(load.workload for load in loads))),
    )


def _asking(server: TomlTable) -> Asking:
    api = server.choice("api", APIS) if "api" in server else "completions"
    prompt = server.choice("prompt", PROMPTS) if "prompt" in server else "words" if api == "chat" else "tokens"
    if (api, prompt) == ("chat", "tokens"):
        raise server.error("prompt", 'the chat API takes no token ids; want "words", or api = "completions"')
    return Asking(
        api=api,
        prompt=prompt,
        token_ids=_token_ids(server),
        extra_body=_extra_body(server),
        max_total_tokens=server.integer("max_total_tokens", at_least=2, default=16_384),
        connect_timeout_s=server.number("connect_timeout_s", default=10.0),
        idle_timeout_s=server.number("idle_timeout_s", default=60.0),
        answer_timeout_s=server.number("answer_timeout_s") if "answer_timeout_s" in server else None,
    )


def _token_ids(server: TomlTable) -> tuple[int, int]:
    if "token_ids" not in server:
        return FIRST_TOKEN, LAST_TOKEN
    ids = server.increasing("token_ids")
    if len(ids) != 2:
        raise server.wrong("token_ids", "the first and the last id, such as [100, 999]")
    return ids[0], ids[1]


def _extra_body(server: TomlTable) -> Mapping[str, object]:
    """{"ignore_eos": true} unless the file says otherwise: answers then have the length asked for."""
    if "extra_body" not in server:
        return {"ignore_eos": True}
    body = server.entries["extra_body"]
    if not isinstance(body, dict):
        raise server.wrong("extra_body", "a table, {} for nothing")
    if ours := [name for name in body if name in OURS]:
        raise server.error("extra_body", f"{ours[0]} is not for it to say; its own are {listed(OURS)}")
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise server.error("extra_body", f"want what JSON can hold: {error}") from None
    return dict(body)


def _loads(server: TomlTable) -> tuple[ServerLoad, ...]:
    loads: list[ServerLoad] = []
    for table in server.tables("load", ("workload", "rates_per_s")):
        workload = table.text("workload")
        if workload in [load.workload for load in loads]:
            raise table.error("workload", f"a second entry for {workload}; put its rates into one")
        loads.extend(ServerLoad(workload=workload, rate_per_s=rate) for rate in _rates(table))
    if not loads:
        raise server.error("load", "missing; want one or more [[server.load]] tables")
    return tuple(loads)


def _rates(table: TomlTable) -> list[float]:
    want = "a list of one or more rates above 0, each larger than the one before"
    values = table.value("rates_per_s", want)
    if not isinstance(values, list) or not values:
        raise table.wrong("rates_per_s", want)
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        raise table.wrong("rates_per_s", want)
    # six digits name a case, so two rates that differ only behind them would be one
    if not all(0 < left < right and f"{left:g}" != f"{right:g}" for left, right in pairwise([*values, 1e9])):
        raise table.wrong("rates_per_s", want)
    return [float(value) for value in values]


def _sizes(profiles: TomlTable, workloads: tuple[str, ...]) -> tuple[ServerSize, ...]:
    keys = ("workloads", "num_requests", "min_rounds", "max_rounds", "budget_s")
    return tuple(_size(name, profiles.table(name, keys), workloads) for name in PROFILES)


def _size(name: str, table: TomlTable, workloads: tuple[str, ...]) -> ServerSize:
    min_rounds = table.integer("min_rounds", at_least=2)  # one round has no spread, so no interval
    return ServerSize(
        name=name,
        workloads=table.strings("workloads", workloads) if "workloads" in table else workloads,
        num_requests=table.integer("num_requests", at_least=2),
        min_rounds=min_rounds,
        max_rounds=table.integer("max_rounds", at_least=min_rounds),
        budget_s=table.number("budget_s"),
    )
