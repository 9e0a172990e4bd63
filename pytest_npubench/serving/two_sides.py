"""The batches of two devices of which one prefills and the other decodes.

A prompt ends on the prefill side with its first token and keeps its blocks there until its keys and values have been
handed over. The decode side reserves blocks for all of them, the output included, before the transfer sets off: nobody
is preempted there, where the prompt could not be made again.
"""

from __future__ import annotations

from collections import deque

from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.member import BatchMember
from pytest_npubench.serving.request import ServingRequest


class PrefillSide(Batch):
    """`leaving` are the requests whose prompts are done, in the order in which that happened."""

    def __init__(self, *, num_layers: int, kv_blocks: int, block_size_tokens: int, max_batch_size: int) -> None:
        super().__init__(
            num_layers=num_layers,
            kv_blocks=kv_blocks,
            block_size_tokens=block_size_tokens,
            max_batch_size=max_batch_size,
        )
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
        num_blocks = self.blocks.blocks_for(arriving.peak_kv_tokens)
        if len(self.admitted) >= self.max_batch_size or num_blocks > self.blocks.num_free:
            return False
        member = BatchMember.of(arriving.request, arriving.dispatched_s)
        self.members[member.id] = self.in_flight[member.id] = member
        self._hold(member, num_blocks)
        return True

    def join(self, request: int) -> None:
        """Its keys and values are here; it decodes from the next iteration on."""
        self._start(self.in_flight.pop(request))
