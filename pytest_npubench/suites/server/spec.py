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
from dataclasses import dataclass, field, replace
from typing import Annotated

from msgspec import Meta

from pytest_npubench.core.hardware import RunLength, all_profiles
from pytest_npubench.core.record_reader import (
    SAME_TABLE,
    Count,
    Fraction,
    Positive,
    Text,
    Texts,
    WrongEntryError,
    at_least,
    check_within,
    increasing,
    key,
    listed,
    one_of,
    tables,
)
from pytest_npubench.engines.http.dialects import DIALECTS, LENGTH_FIXED, OF_WORDS, OUTPUT_TOKENS

APIS = ("completions", "chat")
PROMPTS = ("tokens", "words")
FIRST_TOKEN, LAST_TOKEN = 100, 999
"""Ids of plain tokens in every vocabulary met so far: special ones stand before them or at the end."""

OURS = ("model", "prompt", "messages", "stream")
"""Fields of a request that extra_body may not change: the measurement rests on them."""


def _told_apart(rates: tuple[float, ...]) -> tuple[float, ...]:
    """Six digits name a case, so two rates that differ only behind them would be one."""
    increasing(tuple(float(f"{rate:g}") for rate in rates))
    return rates


_RATES = "a list of one or more rates above 0, each larger than the one before"
Rates = Annotated[tuple[Annotated[float, Meta(gt=0, lt=1e9)], ...], Meta(min_length=1, description=_RATES), _told_apart]
TokenIds = Annotated[tuple[Count, Count], Meta(description="the first and the last id, such as [100, 999]"), increasing]


def of_json(body: Mapping[str, object]) -> Mapping[str, object]:
    """Raises WrongEntryError where a field is ours to say, or no JSON."""
    if ours := [name for name in body if name in OURS]:
        raise WrongEntryError("", f"{ours[0]} is not for it to say; our own are {listed(OURS)}")
    if body.get("max_tokens") not in (None, OUTPUT_TOKENS):
        raise WrongEntryError("", f'max_tokens is the workload\'s; want null, to leave it out, or "{OUTPUT_TOKENS}"')
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise WrongEntryError("", f"want what JSON can hold: {error}") from None
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """A workload, and how many of its requests arrive a second."""

    workload: str
    rate_per_s: float

    @property
    def rate_name(self) -> str:
        """Writes the rate as it stands in a case's id: r2.5."""
        return f"r{self.rate_per_s:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRates:
    """A workload under several loads."""

    workload: Text
    rates_per_s: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSize(RunLength):
    """What a profile runs, with all workloads where it names none: num_requests arrive in one block, a round serves a
    block of every load."""

    workloads: Texts = ()
    num_requests: Annotated[int, at_least(2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How requests are put to a server; times in seconds.

    dialect: the fields that a server of this name takes (engines/http/dialects.py). api: where it is left out, the one
    that the dialect is best asked by, or "completions". prompt: where it is left out, "tokens", or "words" under the
    chat API, which takes no ids. token_ids: first and last id that prompts of token ids are drawn from. extra_body is
    merged into every request, beside the dialect; where both are left out, answers have the length asked for.
    max_total_tokens: the longest prompt and answer together; a server with a shorter context
    has less.
    answer_timeout_s: None for what engines.http.client derives from the tokens asked for.
    """

    dialect: Annotated[str, one_of(tuple(DIALECTS))] = ""
    api: Annotated[str, one_of(APIS)] = ""
    prompt: Annotated[str, one_of(PROMPTS)] = ""
    token_ids: TokenIds = (FIRST_TOKEN, LAST_TOKEN)
    extra_body: Annotated[Mapping[str, object], Meta(description="a table, {} for nothing"), of_json] | None = None
    max_total_tokens: Annotated[int, at_least(2)] = 16_384
    connect_timeout_s: Positive = 10.0
    idle_timeout_s: Positive = 60.0
    answer_timeout_s: Positive | None = None

    def __post_init__(self) -> None:
        """Raises WrongEntryError where the API does not take such prompts."""
        if not self.api:
            object.__setattr__(self, "api", "chat" if self.dialect in OF_WORDS else "completions")
        if not self.prompt:
            object.__setattr__(self, "prompt", "words" if self.api == "chat" else "tokens")
        if (self.api, self.prompt) == ("chat", "tokens"):
            problem = 'the chat API takes no token ids; want "words", or api = "completions"'
            raise WrongEntryError("prompt", problem)

    @property
    def fields(self) -> Mapping[str, object]:
        """What every request has, or lacks, in the place of ours."""
        usual = DIALECTS[self.dialect] if self.dialect else {}
        given = LENGTH_FIXED if self.extra_body is None and not self.dialect else self.extra_body or {}
        return {**usual, **given}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """How a server is asked, under which loads, and the share of arrived requests that must attain their SLO."""

    asking: Asking = field(metadata=SAME_TABLE)
    attainment: Fraction = 0.9
    rates: Annotated[tuple[WorkloadRates, ...], tables("server.load")] = field(metadata=key("load"))
    profiles: Annotated[tuple[ServerSize, ...], all_profiles] = field(metadata=key("profile"))

    def __post_init__(self) -> None:
        """Raises WrongEntryError where a workload has two entries, or a profile names one without."""
        names = [each.workload for each in self.rates]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise WrongEntryError(f"load[{index}].workload", f"a second entry for {name}; put its rates into one")
        for size in self.profiles:
            check_within(f"profile.{size.name}.workloads", size.workloads, names)

    @property
    def loads(self) -> tuple[ServerLoad, ...]:
        return tuple(
            ServerLoad(workload=each.workload, rate_per_s=rate) for each in self.rates for rate in each.rates_per_s
        )

    def size(self, profile: str) -> ServerSize:
        chosen = next(size for size in self.profiles if size.name == profile)
        return replace(chosen, workloads=chosen.workloads or tuple(each.workload for each in self.rates))
