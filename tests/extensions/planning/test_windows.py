"""Layers with a window in the KV cache: against sets of tokens that later queries of each layer can still see."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pytest_npubench.core.measurement import Request
from pytest_npubench.engines.decoder_layers import LayerShape
from pytest_npubench.engines.kv_capacity import KvGroups, kv_groups
from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.extensions.planning.cli.simulation import System, arriving, simulate
from pytest_npubench.extensions.planning.cli.system_options import stated_by_run
from pytest_npubench.extensions.planning.stated_engine import EngineArguments
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan
from pytest_npubench.serving.kv_blocks import KvBlocks
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.hardware_files import folders_of_runs, load_all

GPT_OSS = decoder_shape("gpt-oss-20b")
SIZE = 16


def _shape(number: int, every: int, window: int = 128) -> DecoderShape:
    """Layers of gpt-oss, of which one in so many has no window."""
    windowed, full = GPT_OSS.all_layers[:2]
    layers = tuple(full if (index + 1) % every == 0 else replace(windowed, window=window) for index in range(number))
    return replace(GPT_OSS, num_layers=number, layers=layers, sliding_window=window)


def _system(shape: DecoderShape, kv_capacity_tokens: int) -> System:
    spec = load_all(folders_of_runs())["nvidia-h100"]
    return System(
        shape=shape, spec=spec, tensor_parallel=1, dtype="bf16", kv_capacity_tokens=kv_capacity_tokens, seed=0
    )


def _load() -> tuple[ServingRequest, ...]:
    chance = random.Random(44)
    lengths = tuple(
        Request(input_tokens=chance.choice((1, 16, 128, chance.randint(1, 700))), output_tokens=chance.randint(1, 400))
        for _ in range(50)
    )
    return arriving(lengths, rate_per_s=60, cv=None, seed=0)


class Counting:
    """An executor beside which each request's cached tokens are counted layer by layer, as they lie in blocks."""

    def __init__(self, executor: VirtualExecutor, batch: Batch, shape: DecoderShape) -> None:
        self._executor, self._batch, self._layers = executor, batch, shape.all_layers
        self.num_layers, self.kv_capacity_tokens = executor.num_layers, executor.kv_capacity_tokens
        self.block_size_tokens = executor.block_size_tokens
        self._seen: defaultdict[int, dict[LayerShape, range]] = defaultdict(dict)
        self._most: dict[tuple[int, LayerShape], int] = {}  # blocks that it ever reached
        self.num_compared = 0

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        self._executor.begin(request, prompt_tokens, output_tokens)

    def end(self, request: int) -> None:
        self._forget(request)
        self._executor.end(request)

    def _forget(self, request: int) -> None:
        self._seen.pop(request, None)
        for layer in set(self._layers):
            self._most.pop((request, layer), None)

    def _sees(self, request: int, first: int, stop: int) -> None:
        """Queries of tokens [first, stop) read these keys."""
        for layer in set(self._layers):
            self._seen[request][layer] = range(max(0, first - layer.window + 1) if layer.window else 0, stop)

    def run(self, plan: IterationPlan) -> IterationOutcome:
        outcome = self._executor.run(plan)
        for request in plan.dropped:
            self._forget(request)
        for row in plan.passes[0].prefill:
            self._sees(row.request, row.first_token, row.first_token + row.num_tokens)
        for request in plan.decode:
            stop = max(tokens.stop for tokens in self._seen[request].values())
            self._sees(request, stop, stop + 1)
            for layer in set(self._layers):
                before = self._most.get((request, layer), 0)
                self._most[request, layer] = max(before, *self._reached(layer, request, stop + 1))
        values = sum(
            len(seen[layer]) * layer.cached_values for seen in self._seen.values() for layer in self._layers if seen
        )
        assert outcome.kv_bytes == 2 * values
        self._compare(plan)
        return outcome

    def _reached(self, layer: LayerShape, request: int, stop: int) -> Iterator[int]:
        """Blocks that the last query reads, and each before it where these were not asked for."""
        yield 0
        for last in range(stop if (request, layer) in self._most else 1, stop + 1):
            yield len({token // SIZE for token in range(max(0, last - (layer.window or last)), last)})

    def _compare(self, plan: IterationPlan) -> None:
        """Where all decode, blocks are taken as each group of layers was ever reached."""
        blocks = self._batch.blocks
        of_layer = {layer: sum(self._most[request, layer] for request in plan.decode) for layer in set(self._layers)}
        taken = sum(
            number * (blocks.num_windowed if layer.window else blocks.num_full) for layer, number in of_layer.items()
        )
        num_held = blocks.num_blocks - blocks.num_free
        assert num_held >= taken
        if not self._batch.in_flight:
            assert num_held == taken
            self.num_compared += 1


@pytest.mark.parametrize("every", [2, 4])
@pytest.mark.parametrize("window", [1, 20, 128])
@pytest.mark.parametrize("capacity_tokens", [1200, 60_000])
def test_blocks_and_bytes_are_those_that_later_queries_read(every: int, window: int, capacity_tokens: int) -> None:
    shape, load = _shape(8, every, window), _load()
    system = _system(shape, capacity_tokens)
    scheduler, inner = system.scheduler("chunked", {"chunk_size_tokens": 256}), system.executor()
    executor = Counting(inner, scheduler.batch, shape)
    slow = serve(OpenLoad(load), scheduler, executor, VirtualClock())
    assert executor.num_compared > 300
    assert (capacity_tokens == 1200) == bool(sum(record.num_preemptions for record in slow.records))
    assert scheduler.batch.blocks.num_free == scheduler.batch.blocks.num_blocks
    fast = simulate(system, "chunked", {"chunk_size_tokens": 256}, load)
    assert [record.token_times_s[-1] for record in fast.records] == pytest.approx(
        [record.token_times_s[-1] for record in slow.records], rel=1e-9
    )
    assert list(fast.log.kv_bytes) == list(slow.log.kv_bytes)


def test_more_requests_run_at_once_than_where_all_tokens_are_kept() -> None:
    """1,000 tokens are 63 blocks of 16 in layers without a window and 9 in the others, not 63 and 63."""
    load = arriving((Request(input_tokens=600, output_tokens=401),) * 24, rate_per_s=1000, cv=None, seed=0)
    system = _system(GPT_OSS, 8 * 63 * SIZE)
    blocks = system.scheduler("chunked", {"chunk_size_tokens": 256}).batch.blocks
    assert blocks.num_blocks // blocks.decoding(63) == 2 * 8 * 63 // (63 + 9) == 14
    runs = [replace(system, keeps_windows=keeps) for keeps in (True, False)]
    kept, freed = (simulate(run, "chunked", {"chunk_size_tokens": 256}, load) for run in runs)
    assert max(kept.log.num_running) < max(freed.log.num_running)
    assert sum(record.num_preemptions for record in freed.records) < sum(
        record.num_preemptions for record in kept.records
    )
    assert freed.ended_s < 0.8 * kept.ended_s


@pytest.mark.parametrize(
    ("number", "every", "groups"),
    [(24, 2, (1, 1, 12)), (62, 6, (1, 6, 10)), (48, 4, (1, 3, 12)), (25, 2, (1, 1, 13))],
)
def test_groups_of_layers_are_those_of_vllm(number: int, every: int, groups: tuple[int, int, int]) -> None:
    """As _get_kv_cache_groups_uniform_page_size of vLLM 0.32 has them: full, windowed, layers of a group."""
    num_full, num_windowed, size = groups
    values = size * GPT_OSS.all_layers[0].cached_values
    assert kv_groups(_shape(number, every)) == KvGroups(num_full, num_windowed, 128, values)


def test_layers_of_several_widths_are_counted_by_their_values() -> None:
    shape = _shape(6, 2)
    wide = tuple(layer if layer.window else replace(layer, kv_values=2 * layer.kv_values) for layer in shape.layers)
    assert kv_groups(replace(shape, layers=wide)) == KvGroups(2, 1, 128, 3 * GPT_OSS.all_layers[0].kv_values)


def test_an_index_frees_nothing() -> None:
    layers = tuple(replace(layer, index_values=64) for layer in _shape(8, 2).layers)
    assert kv_groups(replace(_shape(8, 2), layers=layers)) is None
    assert kv_groups(decoder_shape("qwen3-8b")) is None


@pytest.mark.parametrize(
    ("model", "blocks", "size", "chunk", "is_asynchronous", "length", "tokens"),
    [
        ("gpt-oss-20b", 9000, 16, 2048, True, 8192, 94888),
        ("gpt-oss-20b", 9001, 16, 8192, False, 131072, 135404),
        ("gpt-oss-20b", 5003, 32, 512, True, 1000, 76969),
        ("gpt-oss-20b", 12345, 16, 8192, None, 40960, 140732),
        ("gemma", 9000, 16, 2048, True, 8192, 30241),
        ("gemma", 9001, 16, 8192, False, 131072, 101233),
        ("gemma", 5003, 32, 512, True, 1000, 21752),
        ("gemma", 12345, 16, 8192, None, 40960, 55602),
    ],
)
def test_the_size_that_vllm_states_is_of_so_many_blocks(
    model: str, blocks: int, size: int, chunk: int, is_asynchronous: bool | None, length: int, tokens: int
) -> None:
    """As get_kv_cache_capacity of vLLM 0.32 states them, for groups of 1 full and 1 of 128, and of 1 and 6 of 1024."""
    groups = KvGroups(1, 1, 128, 1) if model == "gpt-oss-20b" else KvGroups(1, 6, 1024, 1)
    engine = EngineArguments(
        kv_tokens=tokens,
        chunk_size_tokens=chunk,
        is_asynchronous=is_asynchronous,
        block_tokens=size,
        context_tokens=length,
        version="0.32.1",
    )
    assert engine.blocks_of(groups, 77) == blocks
    assert replace(engine, context_tokens=None).blocks_of(groups, length) == blocks
    if model == "gpt-oss-20b":
        stated = stated_by_run(engine, model)
        system = replace(_system(GPT_OSS, stated.kv_capacity_tokens or 0), block_size_tokens=size)
        assert (system.kv_blocks, stated.doubts) == (blocks, ())
        kept = stated_by_run(replace(engine, keeps_windows=True), model)
        assert (kept.kv_capacity_tokens, kept.doubts) == (tokens, ())
    for unknown in ({"version": "0.19.1"}, {"version": None}, {"context_tokens": None}, {"chunk_size_tokens": None}):
        doubtful = stated_by_run(replace(engine, **unknown), "gpt-oss-20b")
        assert doubtful.kv_capacity_tokens == tokens
        assert f"{tokens} KV tokens are read as tokens of all layers" in doubtful.doubts[0]


@pytest.mark.parametrize(("chunk", "blocks"), [(256, 25), (512, 41), (8192, 521)])
def test_a_long_prompt_takes_what_vllm_admits_it_with(chunk: int, blocks: int) -> None:
    """As SlidingWindowSpec.max_admission_blocks_per_request of vLLM 0.32 has it, for a window of 128."""
    pool = KvBlocks(num_blocks=1000, block_size_tokens=SIZE)
    pool.num_full, pool.num_windowed, pool.window, pool.chunk_tokens = 0, 1, 128, chunk
    assert pool.blocks_for(100_000) == blocks
    assert pool.blocks_for(100) == 7
