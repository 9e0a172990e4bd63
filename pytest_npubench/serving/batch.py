"""The bookkeeping that all policies share: who waits, who is in flight, who decodes, and whose KV blocks those are.

    waiting     arrived or preempted, in order of arrival; holds nothing
    in flight   admitted, some of its prompt still to be prefilled; holds blocks for all of its prompt
    running     decodes a token an iteration; takes a further block when its last one is full

A policy takes requests with `admit_next` and writes its iteration with `plan`; the loop reports it done to `complete`.
What a policy cannot change: requests are admitted in order of arrival; where a decode needs a block and none is free,
the latest admitted request is preempted (its blocks freed, its generated tokens made part of its prompt, itself put in
front of the queue), and nobody is admitted in that iteration. The oldest is thus never preempted for a younger one, and
since each fits alone, it always ends.

Nothing here takes time in proportion to the number of running requests unless that number changes: the step at which
each finishes is known when it starts to decode, and those that need a block at steps of one remainder by the block size
are counted together. Worked number: a prompt of 30 tokens in blocks of 16 holds 2 blocks, room for 2 tokens more; if it
starts at step 7, steps 7 and 8 fill them, and steps 9, 25, 41, ... need a block each.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from functools import cache

from pytest_npubench.errors import ConfigError, WorkloadError
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow, made
from pytest_npubench.serving.kv_blocks import KvBlocks
from pytest_npubench.serving.member import BatchMember
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.step_calendar import Calendar


class Batch:
    """One device's requests. Raises ConfigError for sizes below 1.

    `admitted` are those in flight or running, in order of admission. `iteration` is the number of the next one.
    `expects_more` says whether arrivals are still to come without waiting for anybody to end. `ended` are the requests
    that finished since the loop last looked. `no_prefill` are the passes of every plan that only decodes. `blocks` may
    be replaced by others of its kind before anybody arrives.

    `lingers` says that who ends keeps slot and blocks for one iteration more: where an iteration is planned before the
    one ahead of it has ended, nobody knows yet who ended there (vLLM's asynchronous scheduler). `lingering` are those.
    Where a block is short, the latest admitted is preempted even so: of who lingers, that frees the blocks, early, at
    the iteration `freed_early_at`.

    `step` counts the iterations that decoded, `grown_at` is the last of them for which there is room, and at step s
    num_growing[s % block size] blocks are taken by the running requests. `finishes` says at which step who ends,
    `fills` from which on whose layers with a window take no further blocks.
    """

    def __init__(self, *, num_layers: int, kv_blocks: int, block_size_tokens: int, max_batch_size: int) -> None:
        for name, value in (("num_layers", num_layers), ("max_batch_size", max_batch_size)):
            if value < 1:
                raise ConfigError(f"{name} is {value}; want at least 1")
        self.num_layers = num_layers
        self.all_layers = LayerGroup(0, num_layers)
        self.no_prefill = (LayerPass(self.all_layers),)
        self.max_batch_size = max_batch_size
        self.blocks = KvBlocks(num_blocks=kv_blocks, block_size_tokens=block_size_tokens)
        self.members: dict[int, BatchMember] = {}
        self.waiting: deque[BatchMember] = deque()
        self.in_flight: dict[int, BatchMember] = {}
        self.running: dict[int, BatchMember] = {}
        self.ended: list[BatchMember] = []
        self.iteration = 0
        self.expects_more = True
        self.admitted: dict[int, BatchMember] = {}
        self.step = 0
        self.finishes, self.fills = Calendar(), Calendar()
        self._growing: defaultdict[int, dict[int, BatchMember]] = defaultdict(dict)  # by step % block size
        self.num_growing = [0] * block_size_tokens
        self._full: list[BatchMember] = []  # started with a full last block, and need one before they decode
        self.grown_at = -1
        self._dropped: list[int] = []
        self.lingers = False
        self.lingering: list[BatchMember] = []
        self.freed_early_at = -1
        self._decode: tuple[int, ...] | None = None
        self._decode_only: IterationPlan | None = None

    # what the loop calls

    def check(self, request: ServingRequest) -> None:
        """Raises WorkloadError for a request that could never be served, whatever else is running."""
        peak_kv_tokens = request.total_tokens - 1
        if self.blocks.blocks_for(peak_kv_tokens) > self.blocks.num_blocks:
            states = (
                f", of which a request's states take {self.blocks.state_blocks}" if self.blocks.state_blocks else ""
            )
            raise WorkloadError(
                f"request {request.id}: {request.prompt_tokens} prompt and {request.output_tokens} output tokens keep "
                f"{peak_kv_tokens} tokens in the KV cache, which holds {self.blocks.capacity_tokens} "
                f"({self.blocks.num_blocks} blocks of {self.blocks.block_size_tokens}{states})"
            )

    def add(self, request: ServingRequest, now_s: float) -> None:
        """The request has arrived and waits."""
        self.members[request.id] = member = BatchMember(
            request, now_s, request.id, request.prompt_tokens, request.output_tokens
        )
        self.waiting.append(member)

    def make_room(self) -> None:
        """Before an iteration: a block for each running request whose last one is full, preempting where none is."""
        if self.grown_at < self.step:
            remainder = self.step % self.blocks.block_size_tokens
            if self.fills.first <= self.step:
                for member in self.fills.take(self.step):
                    member.fills_at_step = None
                    self.num_growing[remainder] -= self.blocks.num_windowed
            if num_growing := self.num_growing[remainder]:
                if num_growing > self.blocks.num_free:
                    self._make_scarce_room(tuple(self._growing[remainder].values()))
                else:
                    self.blocks.take(num_growing)
            self.grown_at = self.step
        if self._full:
            full, self._full = self._full, []
            for member in full:
                if self._has_room(member):
                    self.blocks.take(self._growth(member))
                    self._grow_from(member, self.step)

    def complete(self, plan: IterationPlan) -> None:
        """The iteration has run: prompts advance, those that finished theirs start to decode, the last tokens end.

        Raises ConfigError for a plan that decodes some of the running requests but not all.
        """
        if plan.decode:
            if plan.decode is not self._decode:
                self._check_decode(plan.decode)
            self.step += 1
        else:
            self._pause()
        if plan.passes and plan.passes[-1].prefill:
            group, rows = plan.passes[-1]
            for request, _, num_tokens in rows if group.stop == self.num_layers else ():
                member = self.in_flight[request]
                member.prefilled_tokens += num_tokens
                if not self.blocks.are_counted:
                    self.blocks.advance(member)
            for request in plan.finishing:
                self._start(self.in_flight.pop(request))
        self.iteration += 1
        if self.lingering:
            self.end_lingering()
        if self.finishes.first <= self.step:
            for member in self.finishes.take(self.step):
                member.close_segment(self.iteration)
                self._stop(member)
                self.ended.append(member)
                if self.lingers:
                    self.lingering.append(member)
                else:
                    self._free(member)
        if self._dropped:
            self._dropped = []

    def end_lingering(self) -> None:
        """Frees what is held by those who ended and linger."""
        for member in self.lingering:
            self._free(member)
        self.lingering, self.freed_early_at = [], -1

    def take_dropped(self) -> Sequence[int]:
        """Requests that were preempted and that no plan has told the executor of."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def take_ended(self) -> Sequence[BatchMember]:
        ended, self.ended = self.ended, []
        return ended

    # what a policy calls

    @property
    def decode(self) -> tuple[int, ...]:
        """Returns the running requests in the order in which they started; the same tuple as long as they are the
        same."""
        if self._decode is None:
            self._decode = tuple(self.running)
        return self._decode

    def next_waiting(self, *, whole: bool = False) -> BatchMember | None:
        """Returns the one that `admit_next` would admit."""
        return self.waiting[0] if self._wanted(whole) else None

    def admit_next(self, *, whole: bool = False) -> BatchMember | None:
        """The first in the queue goes in flight, or None: nobody waits, the batch is full, or blocks are short.

        It gets blocks for its prompt; with `whole` for its output as well, so that it is never preempted.
        """
        num_blocks = self._wanted(whole)
        if not num_blocks:
            return None
        member = self.waiting.popleft()
        member.num_blocks = num_blocks
        member.num_rows = self.blocks.rows_of(member.peak_kv_tokens if whole else member.prompt_tokens)
        member.prefilled_tokens = self.blocks.admit(member, num_blocks)
        if member.scheduled_at is None:
            member.scheduled_at = self.iteration
        self.admitted[member.id] = self.in_flight[member.id] = member
        return member

    def plan(
        self, rows: tuple[PrefillRow, ...] = (), group: LayerGroup | None = None, *, num_padding_rows: int = 0
    ) -> IterationPlan | None:
        """All running requests decode, and `rows` run through `group` (None: all layers). None: there is nothing to do.

        Rows that reach the end of their prompt in the last layer finish it.
        """
        if not rows:
            if self._decode_only is None or num_padding_rows or self._dropped:
                return self._plan_decode_only(num_padding_rows)
            return self._decode_only
        group = group or self.all_layers
        return IterationPlan(
            self._decode or self.decode,
            (made(LayerPass, (group, rows)),) if group is self.all_layers else self._passes(rows, group),
            self._finishing(rows) if group.stop == self.num_layers else (),
            tuple(self._dropped),
            num_padding_rows,
        )

    def _plan_decode_only(self, num_padding_rows: int) -> IterationPlan | None:
        if not self.running:
            return None
        plan = IterationPlan(self._decode or self.decode, self.no_prefill, (), tuple(self._dropped), num_padding_rows)
        if not self._dropped and not num_padding_rows:
            self._decode_only = plan
        return plan

    def _passes(self, rows: tuple[PrefillRow, ...], group: LayerGroup) -> tuple[LayerPass, ...]:
        prefill = made(LayerPass, (group, rows))
        if group == self.all_layers or not self.running:
            return (prefill,)
        before, after = _around(group, self.num_layers)
        return (*before, prefill, *after)

    def _finishing(self, rows: tuple[PrefillRow, ...]) -> tuple[int, ...]:
        in_flight = self.in_flight
        finishing = []
        for request, first, number in rows:
            if first + number == in_flight[request].prompt_tokens:
                finishing.append(request)
        return tuple(finishing)

    def _wanted(self, whole: bool) -> int:
        """Blocks that the first in the queue gets; 0: it cannot be admitted now, or nobody waits."""
        if not self.waiting or self._dropped or len(self.admitted) >= self.max_batch_size:
            return 0
        if self.freed_early_at == self.iteration:
            return 0
        member, blocks = self.waiting[0], self.blocks
        num_blocks = blocks.blocks_for(member.peak_kv_tokens if whole else member.prompt_tokens)
        fits = num_blocks <= blocks.num_free or blocks.num_free_wanted(member, num_blocks) <= blocks.num_free
        return num_blocks if fits else 0

    def _start(self, member: BatchMember) -> None:
        """Lets a member decode from the next iteration on: its prompt is done and gave a token in this one."""
        member.gives_from = self.iteration
        member.decodes_from_step = self.step
        member.finishes_at_step = self.step + member.remaining_tokens - 1
        self.finishes.put(member.finishes_at_step, member)
        if self.blocks.num_windowed:
            self.blocks.give_back(member.num_blocks - self.blocks.decoding(member.num_rows))
        free_tokens = member.num_rows * self.blocks.block_size_tokens - member.prompt_tokens
        # unless it will have ended by then: the last step it decodes at is the one before it finishes
        if self.step + free_tokens < member.finishes_at_step:
            if free_tokens:
                self._grow_from(member, self.step + free_tokens)
            else:
                self._full.append(member)
        self.running[member.id] = member
        self._decode_only = None
        if self._decode is not None:
            self._decode = (*self._decode, member.id)

    def _grow_from(self, member: BatchMember, step: int) -> None:
        member.grows_from_step = step
        remainder = step % self.blocks.block_size_tokens
        self._growing[remainder][member.id] = member
        self.num_growing[remainder] += self.blocks.num_full
        if self.blocks.num_windowed and (num_left := self.blocks.window_rows - member.num_rows) > 0:
            self.num_growing[remainder] += self.blocks.num_windowed
            member.fills_at_step = step + num_left * self.blocks.block_size_tokens
            self.fills.put(member.fills_at_step, member)

    def _growth(self, member: BatchMember) -> int:
        """Blocks of a running member's next row."""
        rows = self._rows_of(member)
        return self.blocks.decoding(rows + 1) - self.blocks.decoding(rows)

    def _has_room(self, member: BatchMember) -> bool:
        """Whether the member still runs when blocks have been made free for it."""
        while self.blocks.num_free < self._growth(member) and member.id in self.running:
            last = next(reversed(self.admitted.values()))
            if last in self.lingering:
                self.lingering.remove(last)
                self._free(last)
                self.freed_early_at = self.iteration
            else:
                self._preempt(last)
        return member.id in self.running

    def _make_scarce_room(self, growing: Sequence[BatchMember]) -> None:
        for member in growing:
            if self._has_room(member):
                self.blocks.take(self._growth(member))
                member.num_rows += 1
        for member in growing:
            if member.id in self.running:  # counted by blocks_of from now on
                member.num_rows -= 1

    def blocks_of(self, member: BatchMember) -> int:
        """What it holds."""
        return self.blocks.decoding(self._rows_of(member)) if member.id in self.running else member.num_blocks

    def _rows_of(self, member: BatchMember) -> int:
        if member.grows_from_step is None or member.grows_from_step > self.grown_at:
            return member.num_rows
        return member.num_rows + (self.grown_at - member.grows_from_step) // self.blocks.block_size_tokens + 1

    def _check_decode(self, decode: tuple[int, ...]) -> None:
        if decode is not self._decode and decode != self.decode:
            raise ConfigError(f"a plan decodes requests {decode}; want all that run, {self.decode}, or none")

    def _pause(self) -> None:
        """An iteration without decoding: the running requests get no token from it."""
        for member in self.running.values():
            member.close_segment(self.iteration)
            member.gives_from = self.iteration + 1

    def _preempt(self, member: BatchMember) -> None:
        running = member.id in self.running
        num_steps = self.step - member.decodes_from_step if running else 0
        num_tokens = member.prompt_tokens + num_steps if running else member.prefilled_tokens
        self.blocks.preempt(member, self.blocks_of(member), num_tokens)
        member.close_segment(self.iteration)
        if running:
            self.finishes.remove(member.finishes_at_step, member)
        self._release(member)
        member.restart(1 + num_steps if running else 0)
        self.waiting.appendleft(member)
        self._dropped.append(member.id)

    def _release(self, member: BatchMember) -> None:
        self._stop(member)
        self._free(member)

    def _stop(self, member: BatchMember) -> None:
        """It runs no more, and keeps its slot and blocks."""
        if self.running.pop(member.id, None) is None:
            self.in_flight.pop(member.id, None)
            return
        member.num_blocks = self.blocks.decoding(self._rows_of(member))
        self._decode = self._decode_only = None
        if member.grows_from_step is not None:
            remainder = member.grows_from_step % self.blocks.block_size_tokens
            del self._growing[remainder][member.id]
            self.num_growing[remainder] -= self.blocks.num_full
            member.grows_from_step = None
            if member.fills_at_step is not None:
                self.num_growing[remainder] -= self.blocks.num_windowed
                self.fills.remove(member.fills_at_step, member)
                member.fills_at_step = None

    def _free(self, member: BatchMember) -> None:
        self.blocks.release(member, member.num_blocks)
        member.num_blocks = 0
        del self.admitted[member.id]


@cache
def _around(group: LayerGroup, num_layers: int) -> tuple[tuple[LayerPass, ...], tuple[LayerPass, ...]]:
    """The passes before and after a group, which only decode."""
    before = (LayerPass(LayerGroup(0, group.first)),) if group.first else ()
    return before, (LayerPass(LayerGroup(group.stop, num_layers)),) if group.stop < num_layers else ()
