"""One simulated run: a model on devices of one hardware file, requests with arrival times, a policy. No device runs.

The load is the same for every policy: lengths are one seeded sample of the workload, and the arrival times of one rate
come from the same seed. Worked example: 100 requests of layered-arxiv at 1.3 requests/s, seed 0, arrive within 77 s or
so; what rate they really came at is in the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npubench.engines.hf_config import TORCH_DTYPE
from pytest_npubench.engines.no_collection import no_collection
from pytest_npubench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.core.measurement import Request
    from pytest_npubench.engines.kv_capacity import KvGroups
    from pytest_npubench.engines.shapes import DecoderShape
    from pytest_npubench.extensions.planning.measured_run import MeasuredRun
    from pytest_npubench.extensions.planning.pipeline import Pipeline
    from pytest_npubench.extensions.planning.slo_watch import SloWatch
    from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
    from pytest_npubench.extensions.planning.virtual.router import ExpertRouter
    from pytest_npubench.extensions.planning.virtual.step_cost import StepCost
    from pytest_npubench.serving.request import PromptContent, ServingRequest
    from pytest_npubench.serving.result import ServingResult
    from pytest_npubench.serving.schedulers.protocol import Scheduler
    from pytest_npubench.serving.settings import Setting

BLOCK_SIZE_TOKENS = 16  # vLLM's default
# lengths and arrivals come from one bit generator: with one seed a long prompt would always follow a long gap
ARRIVAL_SEEDS = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What the requests are served by."""

    shape: DecoderShape
    spec: HardwareSpec | None
    """None: `cost` says all that is asked of a device."""
    tensor_parallel: int
    dtype: str
    kv_capacity_tokens: int
    seed: int
    is_capacity_guessed: bool = False
    """It is what memory leaves beside the weights: no engine stated it."""
    cost: StepCost | None = None
    """Where it is not the peaks of the hardware file that say what an iteration takes."""
    router: ExpertRouter | None = None
    """Of the model itself, in the synthetic one's place, where no replicas share its experts."""
    is_asynchronous: bool = False
    is_stamped: bool = False
    """The engine noted the arrivals itself, between two iterations."""
    kv_dtype: str | None = None
    pipeline_parallel: int = 1
    """Stages of a replica, each on so many devices."""
    data_parallel: int = 1
    """Replicas."""
    is_expert_parallel: bool = False
    """The replicas share their experts."""
    keeps_blocks: bool = False
    """What a preempted request left in the KV cache is found when it comes back, unless it was overwritten."""
    prefix_hit_fraction: float = 0.0
    """The fraction of each prompt that the KV cache has."""
    moe_routing: str | None = None
    """The routing whose measured MoE layers replace the peaks (extensions/planning/virtual/moe_layers.py)."""
    shares_prefixes: bool = False
    """What prompts have in common, by their ids, is found there, unless it was overwritten."""
    context_tokens: int | None = None
    """Of the model; None: not stated."""
    block_size_tokens: int = BLOCK_SIZE_TOKENS
    """Of a block of the KV cache."""
    keeps_windows: bool = False
    """Layers with a window keep all tokens."""
    prefill_devices: int | None = None
    """Of a replica's devices, under the policy disaggregated; None: half of them."""
    prefill_replicas: int = 1
    decode_replicas: int = 1
    """Workers of each kind under that policy, each on as many devices as the first."""

    @property
    def hardware(self) -> str:
        from pytest_npubench.extensions.planning.virtual.cost_file import NO_HARDWARE

        return self.spec.name if self.spec else NO_HARDWARE

    @property
    def guessed_tokens(self) -> int | None:
        """The KV capacity, where no engine stated it."""
        return self.kv_capacity_tokens if self.is_capacity_guessed else None

    @property
    def most_tokens(self) -> int:
        """Of one request, prompt and answer together: what the model's context and the KV cache hold."""
        room = self.kv_capacity_tokens - replace(self, keeps_windows=True).state_blocks * self.block_size_tokens
        return min(room, self.context_tokens or room)

    @property
    def state_blocks(self) -> int:
        """Blocks that a request takes for states, beside those of its tokens."""
        from pytest_npubench.engines.kv_capacity import state_tokens

        if not self.shape.layers:
            return 0
        tokens = state_tokens(
            self.shape,
            tensor_parallel=self.tensor_parallel,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            num_stages=self.pipeline_parallel,
        )
        if groups := self.kv_groups:
            tokens *= groups.num_full + groups.num_windowed
        return -(-tokens // self.block_size_tokens)

    @property
    def kv_groups(self) -> KvGroups | None:
        """Groups of layers that take blocks of their own; None: all layers keep all tokens."""
        from pytest_npubench.engines.kv_capacity import kv_groups

        return None if self.keeps_windows or self.shares_prefixes else kv_groups(self.shape)

    @property
    def num_sharing(self) -> int:
        return self.data_parallel if self.is_expert_parallel else 1

    def arguments(self) -> dict[str, object]:
        """What an engine of this kind is started with, by vLLM's names."""
        return {
            "tensor_parallel_size": self.tensor_parallel,
            "pipeline_parallel_size": self.pipeline_parallel,
            "data_parallel_size": self.data_parallel,
            "enable_expert_parallel": self.is_expert_parallel,
            "dtype": TORCH_DTYPE.get(self.dtype, self.dtype),
            **({"kv_cache_dtype": TORCH_DTYPE.get(self.kv_dtype, self.kv_dtype)} if self.kv_dtype else {}),
            "enable_prefix_caching": self.keeps_blocks,
            "async_scheduling": self.is_asynchronous,
            "block_size": self.block_size_tokens,
            "num_gpu_blocks_override": self.kv_blocks,
            "disable_hybrid_kv_cache_manager": self.keeps_windows or self.shares_prefixes,
        }

    def executor(self) -> VirtualExecutor:
        from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor

        return VirtualExecutor(
            self.shape,
            self.spec,
            tensor_parallel=self.tensor_parallel,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            kv_capacity_tokens=self.kv_capacity_tokens,
            block_size_tokens=self.block_size_tokens,
            seed=self.seed,
            num_sharing=self.num_sharing,
            cost=copy(self.cost) or self._measured_layers(),  # buckets remember the iteration before
            router=self.router,
            frees_windows=self.kv_groups is not None,
        )

    def _measured_layers(self) -> StepCost | None:
        """Raises ConfigError where there are none of this model on these devices."""
        if self.moe_routing is None:
            return None
        from pytest_npubench.extensions.planning.virtual.moe_layers import measured_moe_cost

        if self.num_sharing > 1:
            raise ConfigError("measured MoE layers are of experts that no replicas share; want no --expert-parallel")
        assert self.spec is not None
        return measured_moe_cost(
            self.shape,
            self.spec,
            tensor_parallel=self.tensor_parallel,
            dtype=self.dtype,
            routing=self.moe_routing,
            kv_dtype=self.kv_dtype,
        )

    def scheduler(self, policy: str, settings: Mapping[str, Setting]) -> Scheduler:
        from pytest_npubench.extensions.planning.virtual.kept_blocks import KeptBlocks
        from pytest_npubench.serving.schedulers import make_scheduler

        scheduler = make_scheduler(
            policy,
            num_layers=self.shape.num_layers,
            kv_blocks=self.kv_blocks,
            block_size_tokens=self.block_size_tokens,
            **settings,
        )
        if self.keeps_blocks or self.prefix_hit_fraction:
            scheduler.batch.blocks = KeptBlocks(
                num_blocks=self.kv_blocks,
                block_size_tokens=self.block_size_tokens,
                keeps_preempted=self.keeps_blocks,
                prefix_hit_fraction=self.prefix_hit_fraction,
            )
        blocks = scheduler.batch.blocks
        blocks.state_blocks = self.state_blocks
        if groups := self.kv_groups:
            blocks.num_full, blocks.num_windowed, blocks.window, _ = groups
            chunk = scheduler.settings.get("chunk_size_tokens")
            blocks.chunk_tokens = chunk * (1 + self.is_asynchronous) if isinstance(chunk, int) else None
        return scheduler

    def pipeline(self, policy: str, settings: Mapping[str, Setting], watch: SloWatch | None) -> Pipeline:
        """A replica of several stages. Raises ConfigError for what runs in no pipeline, and as Stages.of."""
        from pytest_npubench.extensions.planning.pipeline import Pipeline
        from pytest_npubench.extensions.planning.replicas import Replica
        from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
        from pytest_npubench.extensions.planning.virtual.stages import Stages

        others = {
            "policy disaggregated": policy == "disaggregated",
            "a --cost of iterations or buckets": not isinstance(self.cost, CalibratedCost | None),
            "--moe-layers": self.moe_routing is not None,
            "--expert-parallel": self.num_sharing > 1,
            "--prefix-hit ids": self.shares_prefixes,
        }
        wrong = next((name for name, is_wanted in others.items() if is_wanted), None)
        if wrong or self.spec is None:
            raise ConfigError(
                f"pipeline parallel {self.pipeline_parallel}: {wrong or 'no --hardware'} is not simulated with it; a "
                "stage's time is from peaks, or from requests of a pipeline, and its links from a hardware file"
            )
        executors = [self.executor() for _ in range(self.pipeline_parallel)]
        stages = Stages.of(
            executors[0].cost,
            self.shape,
            self.spec,
            number=self.pipeline_parallel,
            tensor_parallel=self.tensor_parallel,
            dtype=self.dtype,
        )
        return Pipeline([Replica(self.scheduler(policy, settings), each, watch) for each in executors], stages)

    @property
    def kv_blocks(self) -> int:
        if groups := self.kv_groups:
            values = self.kv_capacity_tokens * self.shape.kv_bytes_per_token(1)
            return values // (groups.values * self.block_size_tokens)
        return self.kv_capacity_tokens // self.block_size_tokens

    def pools(self) -> tuple[System, System]:
        """The devices that prefill and those that decode, each with a copy of the weights. Raises ConfigError where
        there are none of either."""
        prefill = self.prefill_devices or self.tensor_parallel // 2
        if self.prefill_devices is None and self.tensor_parallel % 2:
            raise ConfigError(
                f"policy disaggregated prefills on half of the devices and decodes on the others; want an even number, "
                f"not {self.tensor_parallel}, or --prefill-devices"
            )
        if prefill >= self.tensor_parallel:
            raise ConfigError(
                f"--prefill-devices {prefill}: none of {self.tensor_parallel} devices is left to decode; want fewer"
            )
        return self._part(prefill), self._part(self.tensor_parallel - prefill)

    def _part(self, devices: int) -> System:
        from pytest_npubench.engines.kv_capacity import default_kv_capacity_tokens

        assert self.spec is not None  # a calibrated cost is refused before
        room = default_kv_capacity_tokens(
            self.shape, self.spec, tensor_parallel=devices, dtype=self.dtype, kv_dtype=self.kv_dtype
        )
        capacity = min(room, self.kv_capacity_tokens)
        return replace(self, tensor_parallel=devices, kv_capacity_tokens=capacity, keeps_windows=True)


@no_collection(collects_before=False)
def simulate(
    system: System,
    policy: str,
    settings: Mapping[str, Setting],
    requests: tuple[ServingRequest, ...],
    watch: SloWatch | None = None,
) -> ServingResult:
    """Serve the requests on a virtual clock, to their end or until `watch` says that the SLO is lost.

    Raises RegistryError for an unknown policy, ConfigError for its settings, WorkloadError for a request that does not
    fit the KV capacity.
    """
    from pytest_npubench.extensions.planning.replicas import Replica, serve_at_their_pace, serve_replicas
    from pytest_npubench.extensions.planning.virtual.shared_experts import SharedExperts

    if system.pipeline_parallel > 1:
        pipelines = [system.pipeline(policy, settings, watch) for _ in range(system.data_parallel)]
        return serve_at_their_pace(requests, pipelines, watch)
    if system.shares_prefixes:
        _check_contents(requests, policy)
    if policy == "disaggregated":
        if system.cost is not None:
            raise ConfigError("policy disaggregated runs on two parts of the devices, which no calibrated cost is of")
        if system.data_parallel > 1:
            raise ConfigError("policy disaggregated runs on two parts of one replica; want a data parallel of 1")
        return _in_pools(*system.pools(), settings, requests, watch)
    executors = [system.executor() for _ in range(system.data_parallel)]
    replicas = [Replica(system.scheduler(policy, settings), executor, watch) for executor in executors]
    if system.shares_prefixes:
        for replica in replicas:
            replica.executor.share_prefixes(replica.scheduler.batch)
    together = SharedExperts(system.shape, executors, seed=system.seed) if system.num_sharing > 1 else None
    return serve_replicas(
        requests,
        replicas,
        together=together,
        is_asynchronous=system.is_asynchronous,
        is_stamped=system.is_stamped,
        watch=watch,
    )


def _check_contents(requests: tuple[ServingRequest, ...], policy: str) -> None:
    if policy == "disaggregated":
        raise ConfigError("policy disaggregated hands keys and values over; it shares none by --prefix-hit ids")
    unknown = next((request for request in requests if request.content is None), None)
    if unknown is not None:
        raise ConfigError(
            f"--prefix-hit ids: request {unknown.id} of {unknown.prompt_tokens} prompt tokens has no ids; want "
            "--replay of a trace with hash_ids of each prompt, or a run with prompt_token_ids"
        )


def _in_pools(
    prefill: System,
    decode: System,
    settings: Mapping[str, Setting],
    requests: tuple[ServingRequest, ...],
    watch: SloWatch | None,
) -> ServingResult:
    from pytest_npubench.extensions.planning.pools import Pools, PoolWorker
    from pytest_npubench.extensions.planning.virtual.cost import handover_s
    from pytest_npubench.serving.schedulers.disaggregated import DisaggregatedScheduler

    spec = prefill.spec
    assert spec is not None

    def transfer_s(num_bytes: int) -> float:
        return handover_s(spec, num_bytes, senders=prefill.tensor_parallel, receivers=decode.tensor_parallel)

    chosen = dict(settings)
    if decode.kv_blocks != prefill.kv_blocks:
        chosen.setdefault("decode_kv_blocks", decode.kv_blocks)

    def worker(system: System, *, decodes: bool) -> PoolWorker:
        scheduler = DisaggregatedScheduler(
            num_layers=system.shape.num_layers,
            kv_blocks=prefill.kv_blocks,
            block_size_tokens=prefill.block_size_tokens,
            **chosen,  # type: ignore[arg-type] # its own checks name what is wrong
        )
        worker = PoolWorker(scheduler, system.executor(), decodes)
        worker.batch.blocks.state_blocks = system.state_blocks
        return worker

    return Pools(
        [worker(prefill, decodes=False) for _ in range(prefill.prefill_replicas)],
        [worker(decode, decodes=True) for _ in range(decode.decode_replicas)],
        transfer_s=transfer_s,
        watch=watch,
    ).serve(requests)


def check_lengths(system: System, run: MeasuredRun) -> None:
    """Raises ConfigError for a request that is longer than the model's context or the KV cache."""
    for request in run.load():
        if request.total_tokens > system.most_tokens:
            raise ConfigError(
                f"{run.source}, request {request.id}: {request.prompt_tokens} prompt and {request.output_tokens} "
                f"output tokens; the model's context and the KV cache hold {system.most_tokens}"
            )


def arriving(
    requests: tuple[Request, ...], *, rate_per_s: float, cv: float | None, seed: int
) -> tuple[ServingRequest, ...]:
    """The lengths at a Poisson rate, or at gamma intervals of this coefficient of variation."""
    from pytest_npubench.serving.arrivals import gamma, poisson

    num_requests = len(requests)
    arrival_seed = ARRIVAL_SEEDS + seed
    times_s = (
        poisson(rate_per_s, num_requests, arrival_seed)
        if cv is None
        else gamma(rate_per_s, cv, num_requests, arrival_seed)
    )
    return arriving_at(times_s, requests)


def arriving_at(
    times_s: tuple[float, ...], requests: tuple[Request, ...], contents: tuple[PromptContent, ...] | None = None
) -> tuple[ServingRequest, ...]:
    from pytest_npubench.serving.arrivals import load_of

    return load_of(times_s, [(request.input_tokens, request.output_tokens) for request in requests], contents)
