"""Serves plans on static buckets: every request has a slot, a row of the one batch that the binaries are compiled for.

All rows run in one bucket, that of the longest KV length among the requests of the iteration; empty slots are padding.
Where that bucket is another one than before, the whole cache moves there, neighbour by neighbour. First all running
requests decode in one step, then prompts run one by one, each padded to the bucket. Who ends leaves its slot; who ends
last gives the cache back, so that the next request begins in its own bucket.

Worked example: buckets 128 and 256, request 1 at a KV length of 120, and the 200 tokens of prompt 2 to be prefilled: a
move to 256, a step and a prefill there. Once request 2 has ended, the cache moves back to 128.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.core.buckets import bucket_of, check_buckets
from pytest_npubench.core.measurement import Request
from pytest_npubench.engines.request_batch import Prompt, random_prompts
from pytest_npubench.engines.static_buckets import StaticBuckets
from pytest_npubench.errors import ConfigError
from pytest_npubench.serving.clock import Clock
from pytest_npubench.serving.iteration import Executor, IterationOutcome, IterationPlan, PrefillRow
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler


class SlotExecutor:
    """An iteration.Executor over an engine that has loaded its slots. A slot is one block of the KV cache.

    requests: all that it will serve. Their prompts, each of the request's own seed, are drawn here: a server is handed
    its tokens. Raises ConfigError where a policy runs a part of a prompt, or prompts through a part of the layers.
    """

    def __init__(self, engine: StaticBuckets, requests: Sequence[ServingRequest]) -> None:
        self.num_layers = engine.shape.num_layers
        self.block_size_tokens = check_buckets(engine.buckets)[-1]
        self.kv_capacity_tokens = engine.batch_size * self.block_size_tokens
        self._engine = engine
        self._bucket: int | None = None  # that of the cache while it holds anything
        self._free = list(range(engine.batch_size))
        self._prompts: dict[int, Prompt] = {
            one.id: random_prompts(
                (Request(input_tokens=one.prompt_tokens, output_tokens=one.output_tokens),),
                engine.shape.vocab_size,
                seed=one.id,
            )[0]
            for one in requests
        }
        self._slots: dict[int, int] = {}
        self._kv_tokens: dict[int, int] = {}

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        """Raises LengthError where no bucket holds the request."""
        bucket_of(self._engine.buckets, prompt_tokens + output_tokens - 1)

    def run(self, plan: IterationPlan) -> IterationOutcome:
        rows = whole_prompts_of(plan, self.num_layers)
        for request in plan.decode:
            self._kv_tokens[request] += 1
        lengths = [self._kv_tokens[request] for request in plan.decode]
        bucket = self._enter(bucket_of(self._engine.buckets, max([*lengths, *(row.num_tokens for row in rows)])))
        tokens: dict[int, int] = {}
        if plan.decode:
            step = self._engine.decode_step(bucket)
            tokens = {request: int(step[self._slots[request]]) for request in plan.decode}
        for row in rows:
            slot = self._slots[row.request] = self._free.pop()
            self._kv_tokens[row.request] = row.num_tokens
            tokens[row.request] = int(self._engine.prefill_row(bucket, slot, self._prompts[row.request])[slot])
        return IterationOutcome(tokens=tokens)

    def end(self, request: int) -> None:
        self._prompts.pop(request)
        self._kv_tokens.pop(request, None)
        if (slot := self._slots.pop(request, None)) is not None:
            self._free.append(slot)
        if self._bucket is not None and not self._slots:
            self._engine.end(self._bucket)
            self._bucket = None

    def _enter(self, wanted: int) -> int:
        """Take the cache to the bucket."""
        if self._bucket is None:
            self._engine.begin(wanted)
            self._bucket = wanted
        order = self._engine.buckets
        while (bucket := self._bucket) != wanted:
            self._bucket = order[order.index(bucket) + (1 if bucket < wanted else -1)]
            self._engine.move_caches(bucket, self._bucket)
        return wanted


def whole_prompts_of(plan: IterationPlan, num_layers: int) -> tuple[PrefillRow, ...]:
    """The prompts of an iteration. Raises ConfigError unless each runs as a whole, through all layers."""
    rows = tuple(row for layers in plan.passes for row in layers.prefill)
    ends = set(plan.finishing)
    if any(row.first_token or row.request not in ends for row in rows) or any(
        layers.prefill and layers.group != (0, num_layers) for layers in plan.passes
    ):
        raise ConfigError(
            "static buckets prefill a whole prompt at once, through all layers; want a policy that plans so: static, "
            "continuous"
        )
    return rows


def serve_slots(requests: Sequence[ServingRequest], executor: Executor, clock: Clock) -> ServingResult:
    """Requests on the slots of an engine or of the virtual clock: between two decode steps of all running requests one
    waiting prompt is prefilled. Each slot is one block of the executor's KV cache. Raises as serving.loop.serve."""
    num_slots = executor.kv_capacity_tokens // executor.block_size_tokens
    scheduler = make_scheduler(
        "continuous",
        num_layers=executor.num_layers,
        kv_blocks=num_slots,
        block_size_tokens=executor.block_size_tokens,
        max_batch_size=num_slots,
        max_prefill_tokens=1,  # the first prompt of an iteration is taken whatever its length
    )
    return serve(OpenLoad(requests), scheduler, executor, clock)
