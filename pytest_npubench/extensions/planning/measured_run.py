"""A load that was served for real: when each request arrived, its lengths, and when its first and last token came.

Read are
    a folder with requests.jsonl and meta.json   one object a request with input_toks, output_toks, queued_ts,
                                                 first_token_ts and last_token_ts in seconds of one clock,
                                                 prompt_token_ids where they are known; arrival_time where these
                                                 are vLLM's own statistics; engine_kwargs
    requests.jsonl alone
    vLLM's benchmark JSON, with --save-detailed  input_lens, output_lens, ttfts, itls and start_times

Worked example: queued at 10.0, first token at 10.2, last of 5 at 10.6 is an arrival at 0 s, a TTFT of 0.2 s, an E2E of
0.6 s and a TPOT of 0.1 s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from pytest_npubench.core.record_reader import OPEN_JSON, WrongEntryError, at_least, key
from pytest_npubench.core.regular_file import read_text
from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.metrics.record import RequestRecord
from pytest_npubench.serving.request import PromptContent, ServingRequest

MAX_BYTES = 256 * 2**20
REQUESTS, META = "requests.jsonl", "meta.json"
_DTYPES = {
    "auto": None,
    "bfloat16": "bf16",
    "half": "fp16",
    "float16": "fp16",
    "float": "fp32",
    "float32": "fp32",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}
Tokens = Annotated[int, at_least(1)]
Seconds = Annotated[float, Meta(ge=0, description="seconds, at least 0")]
Fraction = Annotated[float, Meta(gt=0, le=1, description="a fraction, above 0 and at most 1")]


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
class EngineArguments:
    """What the server was started with, as far as it is known."""

    max_batch_size: Tokens | None = field(default=None, metadata=key("max_num_seqs"))
    chunk_size_tokens: Tokens | None = field(default=None, metadata=key("max_num_batched_tokens"))
    tensor_parallel: Tokens = field(default=1, metadata=key("tensor_parallel_size"))
    data_parallel: Tokens = field(default=1, metadata=key("data_parallel_size"))
    is_expert_parallel: bool = field(default=False, metadata=key("enable_expert_parallel"))
    keeps_blocks: bool = field(default=True, metadata=key("enable_prefix_caching"))
    torch_dtype: str | None = field(default=None, metadata=key("dtype"))
    torch_kv_dtype: str | None = field(default=None, metadata=key("kv_cache_dtype"))
    memory_fraction: Fraction | None = field(default=None, metadata=key("gpu_memory_utilization"))
    kv_blocks: Tokens | None = field(default=None, metadata=key("num_gpu_blocks_override"))
    block_tokens: Tokens | None = field(default=None, metadata=key("block_size"))

    @property
    def kv_capacity_tokens(self) -> int | None:
        """The KV tokens of a replica, None where not given; vLLM's blocks have 16 tokens by default."""
        return self.kv_blocks and self.kv_blocks * (self.block_tokens or 16)

    @property
    def dtype(self) -> str | None:
        """The dtype as hardware files name it; None: not stated."""
        return _DTYPES[self.torch_dtype or "auto"]

    @property
    def kv_dtype(self) -> str | None:
        return _DTYPES[self.torch_kv_dtype or "auto"]

    def __post_init__(self) -> None:
        for name, given in (("dtype", self.torch_dtype), ("kv_cache_dtype", self.torch_kv_dtype)):
            if (given or "auto") not in _DTYPES:
                raise WrongEntryError(name, f"{given!r}; want one of {', '.join(_DTYPES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """Requests in order of arrival, the first at 0 s. stack: what served them; empty where it is not known."""

    source: str
    requests: tuple[MeasuredRequest, ...]
    engine: EngineArguments = EngineArguments()
    stack: str = ""

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
    if path.is_dir():
        meta = _json(path / META) if (path / META).exists() else {}
        about = meta if isinstance(meta, dict) else {}
        stack = f"vllm {about['vllm_version']}" if isinstance(about.get("vllm_version"), str) else ""
        return _run(path, _lines(path / REQUESTS), _engine(path / META, about.get("engine_kwargs", {})), stack)
    if path.suffix == ".csv":
        raise WorkloadError(
            f"{path}: a CSV of requests has arrivals and lengths, and no times of tokens to calibrate on or to compare "
            f"with; want a folder with {REQUESTS}, a .jsonl of that form, or vLLM's benchmark JSON. Its load is "
            "simulated by --workload and --replay"
        )
    if path.suffix == ".jsonl":
        return _run(path, _lines(path), EngineArguments())
    return _run(path, _benchmark(path, _json(path)), EngineArguments())


def _run(path: Path, requests: Sequence[MeasuredRequest], engine: EngineArguments, stack: str = "") -> MeasuredRun:
    if not requests:
        raise WorkloadError(f"{path} holds no request that was served to its end")
    ordered = sorted(requests, key=lambda request: request.arrival_s)
    zero_s = ordered[0].arrival_s
    moved = tuple(
        replace(
            request,
            arrival_s=request.arrival_s - zero_s,
            first_token_s=request.first_token_s - zero_s,
            last_token_s=request.last_token_s - zero_s,
        )
        for request in ordered
    )
    return MeasuredRun(source=str(path), requests=moved, engine=engine, stack=stack)


def _lines(path: Path) -> list[MeasuredRequest]:
    requests = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        if line.strip():
            try:
                requests.append(OPEN_JSON.record(MeasuredRequest, json.loads(line)))
            except ValueError as error:
                raise WorkloadError(f"{path}, line {number}: {error}") from None
    return requests


def _engine(path: Path, given: Any) -> EngineArguments:
    try:
        return OPEN_JSON.record(EngineArguments, given, "engine_kwargs")
    except ValueError as error:
        raise WorkloadError(f"{path}: {error}") from None


def _benchmark(path: Path, entries: Any) -> list[MeasuredRequest]:
    columns = ("input_lens", "output_lens", "ttfts", "itls", "start_times")
    missing = [name for name in columns if not isinstance(entries, Mapping) or not isinstance(entries.get(name), list)]
    if missing:
        raise WorkloadError(
            f"{path} has no list {missing[0]!r}; want a folder with {REQUESTS}, a .jsonl of that form, or vLLM's "
            "benchmark JSON (vllm bench serve --save-result --save-detailed)"
        )
    requests = []
    for number, (prompt, output, ttft_s, gaps_s, start_s) in enumerate(
        zip(*(entries[name] for name in columns), strict=False)
    ):
        if not output:
            continue  # failed: no token came
        try:
            first_s = start_s + ttft_s
            row = (prompt, output, start_s, first_s, first_s + sum(gaps_s))
            names = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
            requests.append(OPEN_JSON.record(MeasuredRequest, dict(zip(names, row, strict=True))))
        except (ValueError, TypeError) as error:
            raise WorkloadError(f"{path}, request {number}: {error}") from None
    return requests


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except ValueError as error:
        raise WorkloadError(f"{path} is not JSON: {error}") from None


def _text(path: Path) -> str:
    try:
        return read_text(path, MAX_BYTES)
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise WorkloadError(f"{path} is not UTF-8 text") from None
