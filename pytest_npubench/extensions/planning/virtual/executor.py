"""Runs iteration plans on a virtual clock: no tensors, only what they would hold, load and take.

One call of `run` costs some ten microseconds, so that a thousand requests simulate in about a second. Nothing in it
walks the decode batch unless the batch changed.

Worked example: VirtualExecutor(decoder_shape("qwen3-30b-a3b"), load_all([...])["nvidia-h100"], tensor_parallel=2,
dtype="bf16", kv_capacity_tokens=843_666) runs a plan with one decode row and answers 48 layers x 8 experts = 384
activations, 3.62 GB of expert loads, and the seconds that cost.py gives for them.
"""

from __future__ import annotations

import math

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.kv_capacity import dtype_bytes
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.virtual.held import HeldTokens
from pytest_npubench.extensions.planning.virtual.mixed_layers import step_cost
from pytest_npubench.extensions.planning.virtual.router import ExpertRouter, sampled_router
from pytest_npubench.extensions.planning.virtual.shared_blocks import SharedBlocks
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepCost, StepWork
from pytest_npubench.extensions.planning.virtual.stretch import DecodeStretch, EachDecode
from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, LayerPass, made

# the residual stream and the output of the last block, which fused norms keep apart
HIDDEN_STATES_PER_TOKEN = 2
MANY_TOKENS = 1_000_000


class VirtualExecutor:
    """An iteration.Executor that can hand keys and values over as well (serving/two_devices.py).

    Bytes are those of all devices of the group together; tokens are never made.

    Raises ConfigError where the hardware file lacks a peak that the cost model needs, or the devices cannot share the
    model out.
    """

    def __init__(
        self,
        shape: DecoderShape,
        spec: HardwareSpec | None,
        *,
        tensor_parallel: int,
        dtype: str,
        kv_capacity_tokens: int,
        kv_dtype: str | None = None,
        block_size_tokens: int = 16,
        seed: int = 0,
        num_sharing: int = 1,
        cost: StepCost | None = None,
        router: ExpertRouter | None = None,
        frees_windows: bool = False,
    ) -> None:
        """spec and what follows it are asked where there is no cost; num_sharing: replicas that share the experts;
        router: in the place of the synthetic one; frees_windows: layers with a window keep what it reaches alone."""
        self.num_layers = shape.num_layers
        self.kv_capacity_tokens = kv_capacity_tokens
        self.block_size_tokens = block_size_tokens
        if cost is None:
            assert spec is not None
            cost = step_cost(
                shape, spec, tensor_parallel=tensor_parallel, dtype=dtype, kv_dtype=kv_dtype, num_sharing=num_sharing
            )
        self.cost: StepCost = cost
        self._decode_cost = DecodeCost(cost, shape.num_layers) if getattr(cost, "is_affine", False) else None
        self._expert_layers = [shape.expert_layers(0, stop)[1] for stop in range(shape.num_layers + 1)]
        self._router = None if shape.is_dense else router or sampled_router(shape, seed)
        self._tokens = HeldTokens(shape.num_layers, shape.sliding_window)
        self._iteration = 0
        self._present: set[int] = set()  # have begun and not ended
        self._is_from_idle = False
        self._blocks: SharedBlocks | None = None
        self._shared_layers = 0  # token-layers that lie there once for several requests
        self._most_token_layers = kv_capacity_tokens * shape.num_layers
        self._expert_bytes = shape.expert_bytes(dtype_bytes(dtype))
        self._token_layer_bytes = shape.kv_bytes_per_token(dtype_bytes(kv_dtype or dtype)) / shape.num_layers
        # of the layers' keys and values those with a window have as much as so many layers have on average
        windowed = sum(layer.cached_values for layer in shape.all_layers if frees_windows and layer.window)
        self._windowed_layers = windowed / max(1, shape.kv_bytes_per_token(1)) * shape.num_layers
        self._state_bytes = shape.state_bytes(dtype_bytes(dtype))
        self._hidden_bytes = HIDDEN_STATES_PER_TOKEN * shape.hidden * dtype_bytes(dtype)

    def share_prefixes(self, batch: Batch) -> None:
        """The batch's prompts share what they have in common, and it lies here once. Wanted before anybody arrives."""
        state_blocks = batch.blocks.state_blocks
        batch.blocks = self._blocks = SharedBlocks(
            num_blocks=batch.blocks.num_blocks, block_size_tokens=self.block_size_tokens
        )
        batch.blocks.state_blocks = state_blocks

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        """Nothing to prepare: a request holds something once its rows run."""
        if not self._present:
            self._is_from_idle = True
        self._present.add(request)

    def end(self, request: int) -> None:
        self._present.discard(request)
        self._tokens.drop(request)

    def drop(self, request: int) -> None:
        """It holds nothing, and may come again."""
        self._tokens.drop(request)

    def export_kv(self, request: int) -> tuple[int, object]:
        """Bytes of the request's keys, values and states, and of how many tokens. They stay here until `end`."""
        context = self._tokens.context_of(request)
        return int(context * self.num_layers * self._token_layer_bytes + self._state_bytes), context

    def import_kv(self, request: int, kv: object) -> None:
        """What another VirtualExecutor exported; the request can decode here."""
        assert isinstance(kv, int)
        self._tokens.receive(request, kv)
        self._check_capacity()

    def run(self, plan: IterationPlan) -> IterationOutcome:
        """Raises MeasurementError where keys and values outgrow the capacity, or a row decodes without its prompt."""
        work, activations = self.work(plan)
        padded = activations if not plan.num_padding_rows else sum(one.activations for one in work.passes)
        return self.outcome(self.cost.seconds(work), activations, padded_activations=padded)

    def run_decode(self, plan: IterationPlan, start_s: float, until_s: float, most: int) -> DecodeStretch | None:
        """Iterations of a plan that only decodes, one after the other as `run` has them: at least one, at most
        `most`, and as many as start before until_s. None: the cost does not tell. Raises as `run`."""
        tokens, cost = self._tokens, self._decode_cost
        if cost is None:
            return None
        if plan.dropped or self._blocks is not None:
            self._free(plan)
        tokens.decode(plan.decode)
        num_rows, padding = len(plan.decode), plan.num_padding_rows
        keys_s, growth_s = tokens.context_tokens * cost.context_s, num_rows * cost.context_s
        if tokens.window_growth:
            most = min(most, 1 + tokens.num_steady())
            growth_s += tokens.window_growth * cost.window_s
        if tokens.window_tokens:
            keys_s += tokens.window_tokens * cost.window_s
        if padding:
            share = _share(plan)
            keys_s, growth_s = keys_s * share, growth_s * share
        kv_bytes = self._kv_bytes()
        kv_growth = num_rows * self.num_layers * self._token_layer_bytes
        if self._windowed_layers:
            kv_growth -= (num_rows - tokens.window_growth) * self._windowed_layers * self._token_layer_bytes
        each = None
        if self._router is None:
            step_s = cost.bases_s[num_rows + padding, 0] + keys_s
            number, end_s = most, start_s + most * (step_s + growth_s * (most - 1) / 2)
            if end_s >= until_s and most > 1:
                number, end_s = _iterations_until(until_s, start_s, step_s, growth_s, most)
        else:
            step_s = keys_s
            each = self._each_decode(plan, cost, start_s, keys_s, growth_s, until_s, most)
            number, end_s = len(each.end_s), each.end_s[-1]
        if number > 1:
            tokens.go_on(number - 1)
        if tokens.token_layers > self._most_token_layers:
            self._check_capacity()
        hidden_bytes = int(tokens.hidden_tokens * self._hidden_bytes)
        return made(DecodeStretch, (number, end_s, step_s, growth_s, kv_bytes, kv_growth, hidden_bytes, each))

    def _each_decode(
        self,
        plan: IterationPlan,
        cost: DecodeCost,
        start_s: float,
        keys_s: float,
        growth_s: float,
        until_s: float,
        most: int,
    ) -> EachDecode:
        """Iterations of a batch whose experts differ from one to the next; keys_s: reading keys and values in the
        first."""
        num_rows, padding, layers = len(plan.decode), plan.num_padding_rows, plan.passes[0]
        now_s = start_s
        ends_s: list[float] = []
        real: list[int] = []
        padded: list[int] = []
        while not ends_s or (len(ends_s) < most and now_s < until_s):
            self._iteration += 1
            activations, with_padding = self._activations(layers, num_rows, padding)
            now_s += cost.bases_s[num_rows + padding, with_padding] + keys_s
            keys_s += growth_s
            ends_s.append(now_s)
            real.append(activations)
            padded.append(with_padding)
        return EachDecode(ends_s, real, padded, [int(activated * self._expert_bytes) for activated in real])

    def _free(self, plan: IterationPlan) -> None:
        """What the plan drops, and what lies on the device once for several requests."""
        for request in plan.dropped:
            self._tokens.drop(request)
        if self._blocks is not None:
            self._shared_layers = self._blocks.num_shared * self.block_size_tokens * self.num_layers

    def _kv_bytes(self) -> float:
        """On the device. Requests that were admitted and have not run share what is not held twice yet."""
        tokens = self._tokens
        token_layers = self._token_layers() if self._windowed_layers else tokens.token_layers - self._shared_layers
        kv_bytes = token_layers * self._token_layer_bytes if token_layers > 0 else 0.0
        return kv_bytes + tokens.num_requests * self._state_bytes if self._state_bytes else kv_bytes

    def _token_layers(self) -> float:
        passed = self._tokens.passed_tokens * self._windowed_layers
        return self._tokens.token_layers - self._shared_layers - passed

    def work(self, plan: IterationPlan) -> tuple[StepWork, int]:
        """What a plan asks of the device, and the experts that it activates, padding rows not counted. The rows have
        run when this returns. Raises as `run`."""
        tokens = self._tokens
        self._iteration += 1
        if plan.dropped or self._blocks is not None:
            self._free(plan)
        tokens.decode(plan.decode)
        num_rows, padding = len(plan.decode), plan.num_padding_rows
        context: float = tokens.context_tokens
        window: float = tokens.window_tokens
        if padding:
            share = _share(plan)
            context, window = context * share, window * share
        passes, activations, with_padding = [], 0, 0
        for layers in plan.passes:
            if self._router is not None:
                real, with_padding = self._activations(layers, num_rows, padding)
                activations += real
            group, rows = layers
            passes.append(made(PassWork, (group.first, group.stop, rows, with_padding)))
            for row in rows:
                tokens.prefill(row, group)
        num_sampled = num_rows + padding + len(plan.finishing)
        if tokens.token_layers > self._most_token_layers:
            self._check_capacity()
        is_from_idle, self._is_from_idle = self._is_from_idle, False
        num_rows += padding
        fields = passes, num_rows, context, window, num_sampled, 1.0, tokens.longest_context, is_from_idle
        return made(StepWork, fields), activations

    def outcome(self, duration_s: float, activations: int, *, padded_activations: int) -> IterationOutcome:
        """Of the plan whose work was asked for last."""
        kv_bytes, hidden_bytes = int(self._kv_bytes()), int(self._tokens.hidden_tokens * self._hidden_bytes)
        expert_bytes = activations * self._expert_bytes
        return IterationOutcome(duration_s, {}, activations, padded_activations, expert_bytes, kv_bytes, hidden_bytes)

    def _activations(self, layers: LayerPass, num_rows: int, padding: int) -> tuple[int, int]:
        """Distinct experts over these layers, without and with the padding rows."""
        assert self._router is not None
        (first, stop), prefill = layers
        first, stop = self._expert_layers[first], self._expert_layers[stop]
        real = self._router.activations(self._iteration, first, stop, num_rows, prefill)
        if not padding:
            return real, real
        return real, self._router.activations(self._iteration, first, stop, num_rows + padding, prefill)

    def _check_capacity(self) -> None:
        token_layers = self._token_layers()
        if token_layers > self._most_token_layers:
            raise MeasurementError(
                f"keys and values of {token_layers / self.num_layers:.0f} tokens; the device holds "
                f"{self.kv_capacity_tokens}"
            )


def _end_s(start_s: float, step_s: float, growth_s: float, number: int) -> float:
    """Of so many iterations, each growth_s longer than the one before (iteration.DecodeStretch)."""
    return start_s + number * (step_s + growth_s * (number - 1) / 2)


def _iterations_until(until_s: float, start_s: float, step_s: float, growth_s: float, most: int) -> tuple[int, float]:
    """How many start before until_s, at least one and at most that many, where these end later; and when the last of
    them ends."""
    if until_s <= start_s:
        return 1, start_s + step_s
    # the root of growth/2 n^2 + (step - growth/2) n = wanted, in the form that takes no difference of like numbers
    wanted_s, linear_s = until_s - start_s, step_s - growth_s / 2
    root = 2 * wanted_s / (linear_s + math.sqrt(linear_s * linear_s + 2 * growth_s * wanted_s))
    number = int(root) + 1
    if number > most:
        number = most
    end_s = _end_s(start_s, step_s, growth_s, number)
    while number > 1 and (before_s := _end_s(start_s, step_s, growth_s, number - 1)) >= until_s:
        number, end_s = number - 1, before_s
    while number < most and end_s < until_s:
        number += 1
        end_s = _end_s(start_s, step_s, growth_s, number)
    return number, end_s


def _share(plan: IterationPlan) -> float:
    """Rows that are read and multiplied over those that count: those that have ended are like the others."""
    return 1 + plan.num_padding_rows / len(plan.decode) if plan.decode else 1.0


class DecodeCost:
    """Seconds of iterations that only decode, of a cost with `is_affine`: affine in the keys that are read.

        seconds = base(rows, activations) + context_s x context tokens + window_s x window tokens

    Base and slopes are read off the cost itself, so that there is one formula of each.
    """

    def __init__(self, cost: StepCost, num_layers: int) -> None:
        self._cost, self._num_layers = cost, num_layers
        self.bases_s = _Bases(self)
        base_s = self.seconds(1, 0, 0, 0)
        self.context_s = (self.seconds(1, 0, MANY_TOKENS, 0) - base_s) / MANY_TOKENS
        self.window_s = (self.seconds(1, 0, 0, MANY_TOKENS) - base_s) / MANY_TOKENS

    def seconds(self, rows: int, activations: int, context: int, window: int) -> float:
        passes = [PassWork(0, self._num_layers, (), activations)]
        return self._cost.seconds(StepWork(passes, rows, context, window, rows))


class _Bases(dict[tuple[int, int], float]):
    """Seconds of one iteration that reads no keys, by rows and activations, as they are asked for."""

    def __init__(self, cost: DecodeCost) -> None:
        self._cost = cost

    def __missing__(self, key: tuple[int, int]) -> float:
        self[key] = seconds = self._cost.seconds(*key, 0, 0)
        return seconds
