"""Runs iteration plans on a virtual clock: no tensors, only what they would hold, load and take.

One call of `run` costs some ten microseconds, so that a thousand requests simulate in about a second. Nothing in it
walks the decode batch unless the batch changed.

Worked example: VirtualExecutor(decoder_shape("qwen3-30b-a3b"), load_all([...])["nvidia-h100"], tensor_parallel=2,
dtype="bf16", kv_capacity_tokens=843_666) runs a plan with one decode row and answers 48 layers x 8 experts = 384
activations, 3.62 GB of expert loads, and the seconds that cost.py gives for them.
"""

from __future__ import annotations

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.virtual.cost import cost_model
from pytest_npubench.engines.virtual.decode_cost import DecodeCost
from pytest_npubench.engines.virtual.held import HeldTokens
from pytest_npubench.engines.virtual.memory import dtype_bytes
from pytest_npubench.engines.virtual.router import ExpertRouter, sampled_router
from pytest_npubench.engines.virtual.step_cost import PassWork, StepCost, StepWork
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.iteration import DecodeStretch, IterationOutcome, IterationPlan, LayerPass

# the residual stream and the output of the last block, which fused norms keep apart
HIDDEN_STATES_PER_TOKEN = 2


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
    ) -> None:
        """spec and what follows it are asked where there is no cost; num_sharing: replicas that share the experts;
        router: in the place of the synthetic one."""
        self.num_layers = shape.num_layers
        self.kv_capacity_tokens = kv_capacity_tokens
        self.block_size_tokens = block_size_tokens
        if cost is None:
            assert spec is not None
            cost = cost_model(
                shape, spec, tensor_parallel=tensor_parallel, dtype=dtype, kv_dtype=kv_dtype, num_sharing=num_sharing
            )
        self.cost: StepCost = cost
        self._decode_cost = DecodeCost(cost, shape.num_layers) if getattr(cost, "is_affine", False) else None
        self._router = None if shape.is_dense else router or sampled_router(shape, seed)
        self._held = HeldTokens(shape.num_layers, shape.sliding_window)
        self._iteration = 0
        self._shared_layers = 0  # token-layers that lie there once for several requests
        self._expert_bytes = shape.expert_bytes(dtype_bytes(dtype))
        self._token_layer_bytes = shape.kv_bytes_per_token(dtype_bytes(kv_dtype or dtype)) / shape.num_layers
        self._hidden_bytes = HIDDEN_STATES_PER_TOKEN * shape.hidden * dtype_bytes(dtype)

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        """Nothing to prepare: a request holds something once its rows run."""

    def end(self, request: int) -> None:
        self._held.drop(request)

    def export_kv(self, request: int) -> tuple[int, object]:
        """Bytes of the request's keys and values, and how many tokens they are of. They stay here until `end`."""
        context = self._held.context_of(request)
        return int(context * self.num_layers * self._token_layer_bytes), context

    def import_kv(self, request: int, kv: object) -> None:
        """What another VirtualExecutor exported; the request can decode here."""
        assert isinstance(kv, int)
        self._held.receive(request, kv)
        self._check_capacity()

    def run(self, plan: IterationPlan) -> IterationOutcome:
        """Raises MeasurementError where keys and values outgrow the capacity, or a row decodes without its prompt."""
        work, activations = self.work(plan)
        return self.outcome(
            self.cost.seconds(work), activations, padded_activations=sum(one.activations for one in work.passes)
        )

    def run_decode(self, plan: IterationPlan, start_s: float, until_s: float, most: int) -> DecodeStretch | None:
        """Iterations of a plan that only decodes, one after the other as `run` has them (iteration.Executor). Raises as
        `run`."""
        held, cost = self._held, self._decode_cost
        if cost is None:
            return None
        self._decode(plan)
        if (steady := held.num_steady()) is not None:
            most = min(most, 1 + steady)
        num_rows, share = len(plan.decode), _share(plan)
        context, window, growth = held.context_tokens, held.window_tokens, held.window_growth
        context_s, window_s = cost.context_s * share, cost.window_s * share
        token_layers, now_s = self._token_layers, start_s
        ends_s: list[float] = []
        real: list[int] = []
        padded: list[int] = []
        while not ends_s or (len(ends_s) < most and now_s < until_s):
            self._iteration += 1
            activations, with_padding = self._activations(plan.passes[0], num_rows, plan.num_padding_rows)
            keys_s = context * context_s + window * window_s
            now_s += cost.base_s(num_rows + plan.num_padding_rows, with_padding) + keys_s
            context += num_rows
            window += growth
            ends_s.append(now_s)
            real.append(activations)
            padded.append(with_padding)
        number = len(ends_s)
        held.go_on(number - 1)
        self._check_capacity()
        per_iteration, each = num_rows * self.num_layers, self._token_layer_bytes
        return DecodeStretch(
            ends_s,
            real,
            padded,
            [int(activated * self._expert_bytes) for activated in real],
            [int((token_layers + done * per_iteration) * each) for done in range(number)],
            int(held.hidden_tokens * self._hidden_bytes),
        )

    def _decode(self, plan: IterationPlan) -> None:
        for request in plan.dropped:
            self._held.drop(request)
        self._shared_layers = plan.shared_kv_tokens * self.num_layers
        self._held.decode(plan.decode)

    @property
    def _token_layers(self) -> int:
        """On the device. Requests that were admitted and have not run share what is not held twice yet."""
        return max(0, self._held.token_layers - self._shared_layers)

    def work(self, plan: IterationPlan) -> tuple[StepWork, int]:
        """What a plan asks of the device, and the experts that it activates, padding rows not counted. The rows have
        run when this returns. Raises as `run`."""
        held = self._held
        self._iteration += 1
        self._decode(plan)
        num_rows, padding, share = len(plan.decode), plan.num_padding_rows, _share(plan)
        context, window = held.context_tokens * share, held.window_tokens * share
        passes, activations = [], 0
        for layers in plan.passes:
            real, with_padding = self._activations(layers, num_rows, padding)
            passes.append(PassWork(*layers.group, layers.prefill, with_padding))
            activations += real
            for row in layers.prefill:
                held.prefill(row, layers.group)
        num_sampled = num_rows + padding + len(plan.finishing)
        self._check_capacity()
        work = StepWork(passes, num_rows + padding, context, window, num_sampled, longest_context=held.longest_context)
        return work, activations

    def outcome(self, duration_s: float, activations: int, *, padded_activations: int) -> IterationOutcome:
        """Of the plan whose work was asked for last."""
        held = self._held
        return IterationOutcome(
            duration_s=duration_s,
            expert_activations=activations,
            padded_expert_activations=padded_activations,
            expert_load_bytes=activations * self._expert_bytes,
            kv_bytes=int(self._token_layers * self._token_layer_bytes),
            hidden_bytes=int(held.hidden_tokens * self._hidden_bytes),
        )

    def _activations(self, layers: LayerPass, num_rows: int, padding: int) -> tuple[int, int]:
        """Distinct experts over these layers, without and with the padding rows."""
        if self._router is None:
            return 0, 0
        (first, stop), prefill = layers.group, layers.prefill
        real = self._router.activations(self._iteration, first, stop, num_rows, prefill)
        if not padding:
            return real, real
        return real, self._router.activations(self._iteration, first, stop, num_rows + padding, prefill)

    def _check_capacity(self) -> None:
        if self._token_layers > self.kv_capacity_tokens * self.num_layers:
            raise MeasurementError(
                f"keys and values of {self._token_layers / self.num_layers:.0f} tokens; the device holds "
                f"{self.kv_capacity_tokens}"
            )


def _share(plan: IterationPlan) -> float:
    """Rows that are read and multiplied over those that count: those that have ended are like the others."""
    return 1 + plan.num_padding_rows / len(plan.decode) if plan.num_padding_rows and plan.decode else 1.0
