"""Prefill on one device, decode on another, KV handed over in between (DistServe: Zhong et al., OSDI 2024).

The prefill device runs whole prompts in order of arrival, the decode device everybody whose keys and values it has:
neither ever waits for the other's kernels, and each has only its own memory (Layered Prefill, section 5.8). A prompt
ends on the prefill side with its first token and keeps its blocks there until its keys and values have been handed
over. The decode side reserves blocks for all of them, the output included, before the transfer sets off: nobody is
preempted there, where the prompt could not be made again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.member import BatchMember
from pytest_npubench.serving.prompts import whole_prompts
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.schedulers.protocol import Policy
from pytest_npubench.serving.settings import MERGE_CHUNKS, Work


class PrefillSide(Batch):
    """`leaving` are the requests whose prompts are done, in the order in which that happened."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.leaving: deque[BatchMember] = deque()

    def check(self, request: ServingRequest) -> None:
        """Raises WorkloadError for a prompt that this side alone cannot hold."""
        if self.blocks.blocks_for(request.prompt_tokens) > self.blocks.num_blocks:
            raise WorkloadError(
                f"request {request.id}: {request.prompt_tokens} prompt tokens; the KV cache of the prefill device "
                f"holds {self.blocks.capacity_tokens}"
            )

    def let_go(self, member: BatchMember) -> None:
        """The first of `leaving` has been handed over."""
        assert self.leaving[0] is member
        self.leaving.popleft()
        self._release(member)

    def _start(self, member: BatchMember) -> None:
        if member.remaining_tokens == 1:
            super()._start(member)
        else:
            member.segments.append((self.iteration, 1))
            self.leaving.append(member)


class DecodeSide(Batch):
    """Requests come in with their keys and values, between two iterations."""

    def reserve(self, arriving: BatchMember) -> bool:
        """Blocks for all of a request of the prefill side; False: not now."""
        self.add(arriving.request, arriving.dispatched_s)
        if self.admit_next(whole=True) is not None:
            return True
        del self.members[self.waiting.pop().id]
        return False

    def join(self, request: int) -> None:
        """Lets a request decode from the next iteration on: its keys and values are here."""
        self._start(self.in_flight.pop(request))


@dataclass(kw_only=True, eq=False)
class DisaggregatedScheduler(Policy):
    """`batch` and `plan` are the prefill device's, `decode_batch` and `plan_decode` the decode device's.

    kv_blocks is the KV cache of the prefill device; decode_kv_blocks that of the other, None: as large.
    max_prefill_tokens limits the prompts that run together, the first of them excepted; the paper names none, 8,192 is
    the chunk at which it finds prefill bound by compute.
    """

    name = "disaggregated"
    num_devices = 2
    is_steady = False

    batch: PrefillSide = field(init=False)
    decode_kv_blocks: int | None = None
    max_prefill_tokens: int | None = 8192
    max_batch_size: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        self._joining: list[int] = []
        self.batch = PrefillSide(**self._sizes())
        decode_kv_blocks = self.kv_blocks if self.decode_kv_blocks is None else self.decode_kv_blocks
        self.decode_batch = DecodeSide(**{**self._sizes(), "kv_blocks": decode_kv_blocks})

    @staticmethod
    def iteration_work(tokens: int, *, decode_counts: bool) -> Work:
        """A device that prefills alone takes more in one go: nobody's decoding waits for it."""
        return {"max_prefill_tokens": MERGE_CHUNKS * tokens}

    def plan(self) -> IterationPlan | None:
        """Returns the prefill device's next iteration: waiting prompts, whole."""
        return self.batch.plan(whole_prompts(self.batch, max_tokens=self.max_prefill_tokens))

    def next_handover(self) -> BatchMember | None:
        """Returns the prompt that was done first, once the decode device has reserved blocks for it."""
        leaving = self.batch.leaving
        return leaving[0] if leaving and self.decode_batch.reserve(leaving[0]) else None

    def handed_over(self, member: BatchMember) -> None:
        """The decode device has its keys and values: the prefill device's blocks are free."""
        self.batch.let_go(member)
        self.joins(member)

    def joins(self, member: BatchMember) -> None:
        """The decode device has keys and values of a request that it reserved blocks for."""
        self._joining.append(member.id)

    def plan_decode(self) -> IterationPlan | None:
        """Returns the decode device's next iteration, with those who have come in since its last one."""
        for request in self._joining:
            self.decode_batch.join(request)
        self._joining = []
        return self.decode_batch.plan()


SCHEDULER = DisaggregatedScheduler
