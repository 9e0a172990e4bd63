"""The policies as they are compared: each with the same prefill work in an iteration.

T = tokens_per_iteration of the load or of the hardware file, the paper's 512. A chunk has T prompt tokens, with decode
tokens beside them; layered prefill takes as many layer groups as make an iteration's work equal to that,
N_lg = ceil(L / T) (Layered Prefill, section 4.4); short prompts merge, and hybrid prefill cuts, at 16 T, the paper's
8,192. A device that prefills alone takes up to 16 T in one go.

Engines let decode tokens use up the chunk. Of the 32 to 64 tokens that saturate a CPU that would be a quarter of the
prefill, taken from chunked prefill alone. vLLM has no other way: its chunks are what is left of T beside decode rows.
"""

from __future__ import annotations

from pytest_npubench.core.case import Case
from pytest_npubench.errors import RegistryError
from pytest_npubench.serving.schedulers import iteration_work, make_scheduler
from pytest_npubench.serving.schedulers.protocol import Scheduler
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import PromptPoint, ServedPoint, Settings
from pytest_npubench.suites.scheduling.spec import LoadSpec


def policy_settings(policy: str, plan: ServingPlan, load: LoadSpec) -> Settings:
    """Returns the settings under which a policy does T tokens of prefill in an iteration; () where it knows no such
    measure, or cannot be had: then the bench says why."""
    try:
        work = iteration_work(policy, plan.tokens_per_iteration(load), decode_counts=plan.traits.decode_counts)
    except RegistryError:
        return ()
    return tuple(work.items())


def served(policy: str, plan: ServingPlan, load: LoadSpec) -> ServedPoint:
    """Returns a policy under a load, at the work an iteration that all are compared at."""
    return ServedPoint(policy=policy, load=load, settings=policy_settings(policy, plan, load))


def scheduler_of(plan: ServingPlan, point: ServedPoint) -> Scheduler:
    """What plans the iterations of a point, with the plan's KV cache. Raises as make_scheduler."""
    serving = plan.serving
    return make_scheduler(
        point.policy,
        num_layers=plan.shape.num_layers,
        kv_blocks=serving.kv_capacity_tokens // serving.block_size_tokens,
        block_size_tokens=serving.block_size_tokens,
        max_batch_size=serving.max_batch_size,
        **dict(point.settings),
    )


def layered_and_chunked(case: Case, plan: ServingPlan) -> tuple[ServedPoint, ServedPoint]:
    """Returns the pair that most of the paper's experiments compare, under the load of a case."""
    load = plan.load(case)
    return served("layered", plan, load), served("chunked", plan, load)


def prompt_in_chunks(plan: ServingPlan, point: PromptPoint) -> ServedPoint:
    """One prompt alone, as chunked prefill serves it: there is nothing to decode beside it."""
    return _chunked_alone(plan, point.chunk_size_tokens, "one prompt")


def probe_alone(plan: ServingPlan) -> ServedPoint:
    """One request alone, as chunked prefill serves it at the work an iteration that policies are compared at."""
    return served("chunked", plan, LoadSpec(model=plan.model, workload="a probe"))


def all_at_once(plan: ServingPlan) -> ServedPoint:
    """Chunked prefill with a chunk that holds whatever the KV cache does: prompts of a batch are prefilled whole."""
    return _chunked_alone(plan, plan.serving.kv_capacity_tokens, "a batch")


def _chunked_alone(plan: ServingPlan, chunk_size_tokens: int, what: str) -> ServedPoint:
    settings: Settings = (("chunk_size_tokens", chunk_size_tokens), ("decode_counts", True))
    return ServedPoint(policy="chunked", load=LoadSpec(model=plan.model, workload=what), settings=settings)
