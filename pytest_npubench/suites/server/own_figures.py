"""What a server says of itself at /metrics while it is loaded: queue time, requests, KV use, prefix hits, preemptions.

The names are those of vLLM, SGLang, TGI and llama.cpp, as their pages list them. Series of one name (ranks, engines)
are added up, of a usage the mean is taken. Gauges are looked at every second; of counters the difference between the
last look and the first counts, and none where it is below 0: the server was started anew.

Worked example: "vllm:request_queue_time_seconds_sum" 10 and 13, its "_count" 100 and 130: 0.1 s a request in the queue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from threading import Event, Thread

from pytest_npubench.backends.server_address import ServerAddress
from pytest_npubench.backends.server_facts import reply_of
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.clock import monotonic
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.reports.number_text import figure, plain

EVERY_S, PATIENCE_S = 1.0, 5.0
RUNNING = (
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "tgi_batch_current_size",
    "llamacpp:requests_processing",
)
WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "tgi_queue_size", "llamacpp:requests_deferred")
KV_USAGE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)
QUEUE = ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds", "tgi_request_queue_duration")
PREFIX_HITS = ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits", "sglang:cached_tokens")
PREFIX_QUERIES = ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries", "sglang:prompt_tokens")
PREEMPTIONS = ("vllm:num_preemptions", "sglang:num_retracted_requests", "sglang:num_retracted_reqs")
NAMES = (*RUNNING, *WAITING, *KV_USAGE, *QUEUE, *PREFIX_HITS, *PREFIX_QUERIES, *PREEMPTIONS)
_SERIES = re.compile(
    rb"^(%s)(_total|_sum|_count)?(?:\{[^}\n]*\})?[ \t]+([-+0-9.eE]+)" % b"|".join(name.encode() for name in NAMES),
    re.MULTILINE,
)
NO_NAME = "/metrics has none of the names of vLLM, SGLang, TGI and llama.cpp"
LARGEST = 1e30  # a journal keeps no larger number, and none below 0
Look = Mapping[str, tuple[float, int]]
"""By name, the sum of all its series and their number."""
NOTHING = (0.0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFigures(Visit):
    """None is what the server does not tell. Fractions are of the cache, and of the tokens of prompts."""

    queue_mean_s: float | None = None
    running_mean: float | None = None
    running_most: float | None = None
    waiting_mean: float | None = None
    waiting_most: float | None = None
    kv_usage_mean_fraction: float | None = None
    kv_usage_most_fraction: float | None = None
    prefix_hit_fraction: float | None = None
    num_preemptions: float | None = None

    @classmethod
    def of(cls, looks: Sequence[Look]) -> OwnFigures:
        if not looks:
            return cls()
        ends = looks[0], looks[-1]
        queued, num_queued = (_grown(ends, tuple(f"{name}{part}" for name in QUEUE)) for part in ("_sum", "_count"))
        hits, queries = _grown(ends, PREFIX_HITS), _grown(ends, PREFIX_QUERIES)
        running, waiting = (_totals(looks, names) for names in (RUNNING, WAITING))
        kv_usage = [total / count for total, count in (_first(look, KV_USAGE) for look in looks) if count]
        return cls(
            queue_mean_s=queued / num_queued if queued is not None and num_queued else None,
            running_mean=fmean(running) if running else None,
            running_most=max(running, default=None),
            waiting_mean=fmean(waiting) if waiting else None,
            waiting_most=max(waiting, default=None),
            kv_usage_mean_fraction=fmean(kv_usage) if kv_usage else None,
            kv_usage_most_fraction=max(kv_usage, default=None),
            prefix_hit_fraction=hits / queries if hits is not None and queries else None,
            num_preemptions=_grown(ends, PREEMPTIONS),
        )

    @classmethod
    def pooled(cls, blocks: Sequence[OwnFigures]) -> OwnFigures | None:
        """Of blocks of as many requests each: means of means and shares, the most of any, all preemptions. None where
        nothing was told."""
        whole: dict[str, float] = {}
        for name in (field.name for field in fields(cls)):
            if values := [value for block in blocks if (value := getattr(block, name)) is not None]:
                whole[name] = max(values) if "_most" in name else sum(values) if "num_" in name else fmean(values)
        return cls(**whole) if whole else None

    @property
    def in_words(self) -> str:
        parts = [] if self.queue_mean_s is None else [f"queue {figure(self.queue_mean_s, 's')} a request"]
        for name, mean, most in (
            ("running", self.running_mean, self.running_most),
            ("waiting", self.waiting_mean, self.waiting_most),
        ):
            if mean is not None and most is not None:
                parts.append(f"{plain(mean)} {name} ({plain(most)} at most)")
        fractions = {
            "KV use": self.kv_usage_mean_fraction,
            "at most": self.kv_usage_most_fraction,
            "prefix hits": self.prefix_hit_fraction,
        }
        parts += [f"{name} {share:.1%}" for name, share in fractions.items() if share is not None]
        if self.num_preemptions is not None:
            parts.append(f"{plain(self.num_preemptions)} preemptions")
        return ", ".join(parts)


class Watch:
    """Looks at /metrics, in a thread of its own, from the beginning of a `with` to its end."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._over = Event()
        self._looks: list[Look] = []
        self._why = ""
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._look()
        if not self._why:
            self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def figures(self) -> OwnFigures:
        """What was seen, once it is over."""
        return OwnFigures.of(self._looks)

    @property
    def why(self) -> str:
        """Why nothing was seen; empty where something was."""
        return "" if any(self._looks) else self._why or NO_NAME

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S) and not self._why:
            self._look()
        if not self._why:
            self._look()

    def _look(self) -> None:
        """Keeps what a look shows, or why there is nothing to see, after which nobody looks again."""
        root = self._address.url.rstrip("/").removesuffix("/v1")
        try:
            reply = reply_of(self._address, f"{root}/metrics", monotonic() + PATIENCE_S)
        except DeviceUnavailableError as error:
            self._why = str(error)
            return
        if reply.status == 200 and not reply.coding:
            self._looks.append(read(reply.body))
        else:
            self._why = f"no /metrics: HTTP {reply.status}"


def read(text: bytes) -> Look:
    """Returns the series that are known here, by name and ending; _total is none."""
    values: dict[str, tuple[float, int]] = {}
    for name, ending, number in _SERIES.findall(text):
        key = (name + ending.removesuffix(b"_total")).decode()
        try:
            value = float(number)
        except ValueError:
            continue
        if 0 <= value < LARGEST:
            total, count = values.get(key, NOTHING)
            values[key] = total + value, count + 1
    return values


def _totals(looks: Sequence[Look], names: Sequence[str]) -> list[float]:
    """Returns a gauge in each look that has it, of all its series together."""
    return [total for total, count in (_first(look, names) for look in looks) if count]


def _grown(ends: tuple[Look, Look], names: Sequence[str]) -> float | None:
    """Returns how much a counter grew from the first look to the last."""
    (before, _), (after, count) = (_first(look, names) for look in ends)
    return after - before if count and after >= before else None


def _first(look: Look, names: Sequence[str]) -> tuple[float, int]:
    """Returns the first of the names that a look has."""
    return next((look[name] for name in names if name in look), NOTHING)
