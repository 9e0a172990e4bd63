"""A load that was served for real: when each request arrived, its lengths, and when its first and last token came.

Read are
    a folder with requests.jsonl and meta.json   one object a request with input_toks, output_toks, queued_ts,
                                                 first_token_ts and last_token_ts in seconds of one clock,
                                                 prompt_token_ids where they are known; arrival_time where these
                                                 are vLLM's own statistics; of meta.json engine_kwargs, and
                                                 kv_cache with what the engine said of its cache when it started
    a .jsonl of that form, with or without a meta.json beside it (NAME.meta.json beside NAME.jsonl)
    vLLM's benchmark JSON, with --save-detailed  input_lens, output_lens, ttfts, itls and start_times; or a .jsonl of
                                                 one such object, the form in which SGLang writes

Requests that failed, and those whose times were not measured, are left out and counted; a run that lost more than
MOST_LOST of its requests so is refused. A key that is neither read nor known to be without effect is named in a doubt.

Worked example: queued at 10.0, first token at 10.2, last of 5 at 10.6 is an arrival at 0 s, a TTFT of 0.2 s, an E2E of
0.6 s and a TPOT of 0.1 s.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from msgspec import Meta

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.record_reader import OPEN_JSON, WrongEntryError, key, keys_of
from pytest_npubench.core.regular_file import read_text
from pytest_npubench.errors import WorkloadError
from pytest_npubench.extensions.planning.stated_engine import (
    OF_RUNS,
    EngineArguments,
    engine_of,
    is_neutral,
    unread,
)
from pytest_npubench.serving.metrics.record import RequestRecord
from pytest_npubench.serving.request import PromptContent, ServingRequest
from pytest_npubench.workloads.reading import MAX_TOKENS

MAX_BYTES = 256 * 2**20
REQUESTS, META = "requests.jsonl", "meta.json"
MOST_LOST = 0.1
"""Of the requests: with more of them missing, what is left is another load."""
MOST_TIMES = {"duration": 2.0, "request_throughput": 2.0, "mean_ttft_ms": 500.0}
"""What a benchmark says that its times are: a unit that is mistaken is off by 1,000, and a span by less."""
SLOWEST_S = 1.0
"""Between two tokens; above it times may well be milliseconds."""
FAILED, ABSENT = "failed", "not in its lists"
UNFINISHED = ("abort", "error", "cancelled", "canceled", "timeout")
"""Reasons for the end of a request that was not served."""
COLUMNS = ("input_lens", "output_lens", "ttfts", "itls", "start_times")
OF_REQUESTS = """request_id id scheduled_ts num_preemptions error errors success finish_reason num_generation_tokens
    first_token_latency is_corrupted e2e ttft tpot latency"""
OF_BENCHMARKS = """endpoint_type backend label num_prompts request_rate burstiness duration completed rps_change_events
    failed total_input_tokens total_output_tokens request_throughput request_goodput request_goodput: output_throughput
    total_token_throughput max_output_tokens_per_s max_concurrent_requests generated_texts rtfx ramp_up_strategy
    ramp_up_start_rps ramp_up_end_rps latencies queue_times dataset_name sharegpt_output_len random_input_len
    random_output_len random_range_ratio concurrency input_throughput total_throughput total_input_text_tokens
    total_input_vision_tokens total_output_tokens_retokenized output_throughput_retokenized
    total_throughput_retokenized max_itl_ms tag benchmark_start_time benchmark_end_time global_request_ids
    user_throughput run_number input_len output_len"""
WITHOUT_EFFECT = frozenset(f"{OF_REQUESTS} {OF_RUNS} {OF_BENCHMARKS}".split())
"""Keys of what is known already, or of what changes nothing that is simulated."""
SUMMARIES = ("mean_", "median_", "std_", "p50_", "p90_", "p95_", "p99_", "p25_", "p75_")
Seconds = Annotated[float, Meta(ge=0, le=1e15, description="seconds from 0 to 1e15")]
Tokens = Annotated[int, Meta(ge=1, le=MAX_TOKENS, description=f"a whole number of tokens from 1 to {MAX_TOKENS}")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequest:
    """Seconds on one clock. wall_s: of the arrival, on another clock, which vLLM's own statistics have beside it."""

    prompt_tokens: Tokens = field(metadata=key("input_toks"))
    output_tokens: Tokens = field(metadata=key("output_toks"))
    arrival_s: Seconds = field(metadata=key("queued_ts"))
    first_token_s: Seconds = field(metadata=key("first_token_ts"))
    last_token_s: Seconds = field(metadata=key("last_token_ts"))
    token_ids: tuple[int, ...] | None = field(default=None, metadata=key("prompt_token_ids"))
    wall_s: float | None = field(default=None, metadata=key("arrival_time"))

    def __post_init__(self) -> None:
        if self.token_ids is not None and len(self.token_ids) != self.prompt_tokens:
            raise WrongEntryError(
                "prompt_token_ids", f"{len(self.token_ids)} ids; want input_toks, {self.prompt_tokens}"
            )
        if self.first_token_s < self.arrival_s:
            raise WrongEntryError("first_token_ts", f"{self.first_token_s} is before the arrival at {self.arrival_s}")
        if self.last_token_s < self.first_token_s:
            raise WrongEntryError("last_token_ts", f"{self.last_token_s} is before the first token's")

    @property
    def ttft_s(self) -> float:
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> float:
        return self.last_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float:
        """The mean time of the tokens after the first; 0 without any."""
        return (self.last_token_s - self.first_token_s) / max(1, self.output_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """Requests in order of arrival, the first at 0 s. stack: what served them; empty where it is not known. engine:
    None where nothing was said of it. doubts: what was left out, and which keys were not read, in words."""

    source: str
    requests: tuple[MeasuredRequest, ...]
    engine: EngineArguments | None = None
    stack: str = ""
    doubts: tuple[str, ...] = ()

    @property
    def taken(self) -> str:
        """In words, how much was read, and in which unit."""
        num_requests, span_s = len(self.requests), self.requests[-1].arrival_s
        rate = f", {(num_requests - 1) / span_s:.3g} requests/s" if span_s else ""
        return f"{num_requests} requests over {span_s:.4g} s{rate}, times in seconds"

    @property
    def is_stamped(self) -> bool:
        """Arrivals are vLLM's own stamps, which its engine takes between two iterations."""
        return all(one.wall_s is not None for one in self.requests)

    def load(self) -> tuple[ServingRequest, ...]:
        """The requests as they arrived, ids from 0."""
        return tuple(
            ServingRequest(
                id=index,
                arrival_s=one.arrival_s,
                prompt_tokens=one.prompt_tokens,
                output_tokens=one.output_tokens,
                content=None if one.token_ids is None else PromptContent(one.token_ids),
            )
            for index, one in enumerate(self.requests)
        )

    def records(self) -> tuple[RequestRecord, ...]:
        """The run's records; tokens between the first and the last, which it has, are evenly spaced."""
        return tuple(
            RequestRecord(
                id=index,
                arrival_s=one.arrival_s,
                prompt_tokens=one.prompt_tokens,
                output_tokens=one.output_tokens,
                dispatched_s=one.arrival_s,
                token_times_s=tuple(one.first_token_s + number * one.tpot_s for number in range(one.output_tokens)),
            )
            for index, one in enumerate(self.requests)
        )


def measured_run(path: Path) -> MeasuredRun:
    """Raises WorkloadError for what is not there, not of these forms, or runs backwards, with line and key."""
    kind = Path(path.name.removesuffix(".gz")).suffix
    if path.is_dir() or kind == ".jsonl":
        requests = path / REQUESTS if path.is_dir() else path
        if path.is_dir() and not requests.exists() and (packed := path / f"{REQUESTS}.gz").exists():
            requests = packed
        meta = meta_path(requests)
        about = _json(meta) if meta.exists() else {}
        if not isinstance(about, Mapping):
            raise WorkloadError(f"{meta} holds a {type(about).__name__}; want an object")
        stack = f"vllm {about['vllm_version']}" if isinstance(about.get("vllm_version"), str) else ""
        engine, of_engine = engine_of(meta, about) if about else (None, ())
        lines = [(number, line) for number, line in enumerate(_text(requests).splitlines(), 1) if line.strip()]
        of_lines = _benchmark_of_line if lines and f'"{COLUMNS[0]}"' in lines[0][1] else _rows_of_lines
        return _run(path, of_lines(requests, lines), engine, stack, of_engine)
    if kind == ".csv":
        raise WorkloadError(
            f"{path}: a CSV of requests has arrivals and lengths, and no times of tokens to calibrate on or to compare "
            f"with; want a folder with {REQUESTS}, a .jsonl of that form, or vLLM's benchmark JSON. Its load is "
            "simulated by --workload and --replay"
        )
    return _run(path, _benchmark(path, _json(path)))


def meta_path(requests: Path) -> Path:
    """What stands beside a file of requests and says how they were served."""
    name = requests.name.removesuffix(".gz")
    return requests.with_name(META if name == REQUESTS else f"{name.removesuffix('.jsonl')}.{META}")


class _Rows:
    """The requests of one file as they are read. Those without a time are counted by what they lack."""

    def __init__(self) -> None:
        self.requests: list[MeasuredRequest] = []
        self.lost: Counter[str] = Counter()
        self.doubts: tuple[str, ...] = ()
        self.says_unit = False
        self.engine: EngineArguments | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Raises WrongEntryError for a row that no request can be."""
        if lack := _lack(row):
            self.lost[lack] += 1
        else:
            self.requests.append(OPEN_JSON.record(MeasuredRequest, row))


def _lack(row: Mapping[str, Any]) -> str:
    """Why nothing can be learned from a request; empty where it was measured."""
    has_failed = row.get("error") or str(row.get("success")).lower() in ("false", "0")
    if has_failed or row.get("finish_reason") in UNFINISHED or row.get("output_toks") == 0:
        return FAILED
    arrival_s, first_s, last_s = (row.get(name, "") for name in ("queued_ts", "first_token_ts", "last_token_ts"))
    if arrival_s is not None and first_s in (None, 0, arrival_s):
        return "without a TTFT"
    several = isinstance(row.get("output_toks"), int) and row["output_toks"] > 1
    return "without times between tokens" if several and last_s in (None, 0, first_s) else ""


def _run(
    path: Path, rows: _Rows, engine: EngineArguments | None = None, stack: str = "", of_engine: tuple[str, ...] = ()
) -> MeasuredRun:
    """Raises WorkloadError where too few of the requests were measured."""
    num_lost, there = rows.lost.total(), rows.lost.total() + len(rows.requests)
    reasons = ", ".join(f"{number} {reason}" for reason, number in rows.lost.items())
    if not rows.requests or num_lost / there > MOST_LOST:
        raise WorkloadError(
            f"{path}: {num_lost} of {there} requests were not measured ({reasons}); at most {MOST_LOST:.0%} may be "
            "left out"
            if num_lost
            else f"{path} holds no request that was served to its end"
        )
    ordered = sorted(rows.requests, key=lambda request: request.arrival_s)
    zero_s = ordered[0].arrival_s
    times = ("arrival_s", "first_token_s", "last_token_s")
    moved = tuple(replace(request, **{name: getattr(request, name) - zero_s for name in times}) for request in ordered)
    lost = (f"{num_lost} of {there} requests are left out: {reasons}",) if num_lost else ()
    gap_s = median(one.tpot_s for one in ordered)
    unit = (f"tokens come {gap_s:.3g} s apart in the median, and nothing says that times are seconds",)
    doubts = (*lost, *(unit if gap_s >= SLOWEST_S and not rows.says_unit else ()), *rows.doubts, *of_engine)
    return MeasuredRun(source=str(path), requests=moved, engine=engine or rows.engine, stack=stack, doubts=doubts)


def _rows_of_lines(path: Path, lines: Sequence[tuple[int, str]]) -> _Rows:
    rows, keys, ids = _Rows(), dict[str, Any](), Counter[str]()
    for number, line in lines:
        try:
            row = OPEN_JSON.table(json_value(line), "")
            rows.add(row)
        except ValueError as error:
            raise WorkloadError(f"{path}, line {number}: {error}") from None
        keys |= {name: value for name, value in row.items() if not is_neutral(name, value)}
        if (request := row.get("request_id", row.get("id"))) is not None:
            ids[str(request)] += 1
    again = [name for name, number in ids.items() if number > 1]
    twice = (
        f"{len(again)} ids of requests stand there more than once, {''.join(again[:1])} first: two runs in one file?"
    )
    said = (twice,) if again else ()
    rows.doubts = (*said, *unread(path, keys, keys_of(MeasuredRequest), WITHOUT_EFFECT, SUMMARIES))
    return rows


def _benchmark_of_line(path: Path, lines: Sequence[tuple[int, str]]) -> _Rows:
    """Raises WorkloadError for several runs, which SGLang writes one after another."""
    if len(lines) > 1:
        raise WorkloadError(f"{path} has {len(lines)} runs of a benchmark, one a line; want a file of one of them")
    try:
        return _benchmark(path, json_value(lines[0][1]))
    except ValueError as error:
        raise WorkloadError(f"{path}, line {lines[0][0]}: {error}") from None


def _benchmark(path: Path, entries: Any) -> _Rows:
    doubts: tuple[str, ...] = ()
    if isinstance(entries, Mapping) and isinstance(entries.get("input_lens"), list):
        entries, doubts = _with_arrivals(entries, len(entries["input_lens"]))
    missing = [name for name in COLUMNS if not isinstance(entries, Mapping) or not isinstance(entries.get(name), list)]
    if missing:
        raise WorkloadError(
            f"{path} has no list {missing[0]!r}; want a folder with {REQUESTS}, a .jsonl of that form, or vLLM's "
            "benchmark JSON (vllm bench serve --save-result --save-detailed); SGLang's says nothing of when its "
            "requests arrived, unless request_rate is inf or start_times are added"
        )
    lists = {name: entries[name] for name in COLUMNS}
    if isinstance(entries.get("errors"), list):
        lists["errors"] = entries["errors"]
    lengths = {name: len(column) for name, column in lists.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {number}" for name, number in lengths.items())
        raise WorkloadError(f"{path}: lists of unequal length ({shown}); want one entry a request in each")
    rows = _Rows()
    for number, (prompt, output, ttft_s, gaps_s, start_s, *error) in enumerate(zip(*lists.values(), strict=True)):
        try:
            rows.add(_benchmark_row(prompt, output, ttft_s, gaps_s, start_s) | {"error": error[0] if error else ""})
        except ValueError as problem:
            raise WorkloadError(f"{path}, request {number}: {problem}") from None
    asked, failed = (entries.get(name) for name in ("num_prompts", "failed"))
    absent = max(
        asked - lengths["input_lens"] if isinstance(asked, int) else 0,
        failed - rows.lost.total() if isinstance(failed, int) else 0,
    )
    if absent > 0:
        rows.lost[ABSENT] += absent
    rows.says_unit = _says_unit(path, rows.requests, entries)
    completed = entries.get("completed")
    if isinstance(completed, int) and completed < (num_read := len(rows.requests)):
        doubts += (f"{num_read} requests have times and no error, and completed says {completed}",)
    doubts += _of_rate(entries) + _of_gaps(entries)
    # vllm bench sweep writes what it varies of the engine beside the results
    stated = {name: entries[name] for name in keys_of(EngineArguments) if isinstance(entries.get(name), int | float)}
    if stated:
        rows.engine, _ = engine_of(path, {"engine_kwargs": stated})
    read = (*COLUMNS, "errors", "max_concurrency", *stated)
    rows.doubts = (*doubts, *unread(path, entries, read, WITHOUT_EFFECT, SUMMARIES))
    return rows


def _with_arrivals(entries: Mapping[str, Any], num_requests: int) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The entries with start_times where their request_rate tells them, and what is doubtful of when requests came."""
    limit = entries.get("max_concurrency")
    if isinstance(limit, int) and limit < num_requests:
        return entries, (f"max_concurrency is {limit}: requests waited for answers, and are simulated as they came",)
    if entries.get("start_times") is None and entries.get("request_rate") in ("inf", math.inf):
        words = "start_times are not given: all came at once, as request_rate is inf"
        return {**entries, "start_times": [0.0] * num_requests}, (words,)
    return entries, ()


def _of_rate(entries: Mapping[str, Any]) -> tuple[str, ...]:
    """What is doubtful of when requests came, where the rate that was asked for is another."""
    starts_s, asked = entries["start_times"], entries.get("request_rate")
    if not isinstance(asked, int | float) or not 0 < asked < MAX_TOKENS or len(starts_s) < 20:
        return ()
    gaps, span_s = len(starts_s) - 1, max(starts_s) - min(starts_s)
    if asked * span_s / MOST_TIMES["duration"] <= gaps <= asked * span_s * MOST_TIMES["duration"]:
        return ()
    return (f"request_rate is {asked}, and {gaps / span_s if span_s else math.inf:.3g} by start_times",)


def _of_gaps(entries: Mapping[str, Any]) -> tuple[str, ...]:
    """What is doubtful of times between tokens, where there are not as many as tokens after the first."""
    pairs = [
        (len(gaps), tokens - 1)
        for gaps, tokens in zip(entries["itls"], entries["output_lens"], strict=True)
        if gaps and isinstance(tokens, int)
    ]
    num_gaps, wanted = map(sum, zip(*pairs, strict=True)) if pairs else (0, 0)
    if abs(num_gaps - wanted) <= MOST_LOST * wanted:
        return ()
    return (
        f"itls are {num_gaps} times for {wanted} tokens after the first: some are missing, or are of several tokens",
    )


def _says_unit(path: Path, requests: Sequence[MeasuredRequest], entries: Mapping[str, Any]) -> bool:
    """Whether a duration, a rate or a mean says that times are in seconds. Raises WorkloadError for requests that took
    far longer than that: their times are in another unit."""
    if not requests:
        return False
    span_s = max(one.last_token_s for one in requests) - min(one.arrival_s for one in requests)
    number = entries.get("completed")
    read = {
        "duration": span_s,
        "mean_ttft_ms": 1e3 * sum(one.ttft_s for one in requests) / len(requests),
        "request_throughput": (number if isinstance(number, int) and number < 1e15 else len(requests)) / span_s,
    }
    values = ((name, entries.get(name)) for name in read)
    given = {name: value for name, value in values if isinstance(value, int | float) and 0 < value < 1e15}
    for name, value in given.items():
        larger, smaller = (value, read[name]) if name == "request_throughput" else (read[name], value)
        if larger / MOST_TIMES[name] > smaller:
            raise WorkloadError(
                f"{path}: {name} is {value}, and {read[name]:.6g} by its requests; want start_times, ttfts and itls in "
                "seconds"
            )
    return bool(given)


def _benchmark_row(prompt: Any, output: Any, ttft_s: Any, gaps_s: Any, start_s: Any) -> dict[str, Any]:
    """Its times on one clock; None for one that was not measured. Raises WrongEntryError for what is no time."""
    start_s = OPEN_JSON.value(float, start_s, "start_times")
    first_s = start_s + ttft_s if (ttft_s := OPEN_JSON.value(float | None, ttft_s, "ttfts")) else None
    gaps_s = OPEN_JSON.value(tuple[Seconds, ...] | None, gaps_s, "itls")
    has_gaps = bool(gaps_s) or not isinstance(output, int) or output <= 1
    last_s = None if first_s is None or not has_gaps else first_s + sum(gaps_s or ())
    names = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
    return dict(zip(names, (prompt, output, start_s, first_s, last_s), strict=True))


def _json(path: Path) -> Any:
    try:
        return json_value(_text(path))
    except ValueError as error:
        raise WorkloadError(f"{path} is not JSON: {error}") from None


def _text(path: Path) -> str:
    try:
        return read_text(path, MAX_BYTES)
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise WorkloadError(f"{path} is not UTF-8 text") from None
