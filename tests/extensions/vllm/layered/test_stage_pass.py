"""Rows of a packed batch, and stages of a decoder against the same decoder in one pass. No vLLM."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.extensions.vllm.layered.flight import set_off
from pytest_npubench.extensions.vllm.layered.rows import split_rows
from pytest_npubench.extensions.vllm.layered.settings import LayeredSettings

torch = pytest.importorskip("torch", reason="torch is not installed")

HIDDEN = 4
NUM_LAYERS = 5


class Decoder:
    """Row by row, depends on the position and the layer, and overwrites what it is given, as vLLM's norms do."""

    def __init__(self) -> None:
        self.ran: Counter[tuple[int, int]] = Counter()  # (token id, layer)
        self.layers = [self._layer(index) for index in range(NUM_LAYERS)]

    def embed_input_ids(self, input_ids):
        rows = torch.arange(1, HIDDEN + 1) * input_ids[:, None].float()
        rows[:, 0] = input_ids.float()  # tells a layer who it sees
        return rows

    def norm(self, hidden, residual):
        return hidden + residual, residual

    def _layer(self, index):
        def run(positions, hidden, residual):
            if residual is None:
                residual = hidden.clone()
            for row in residual:
                self.ran[int(row[0]), index] += 1
            hidden.mul_(0.5).add_(positions[:, None] * 0.01 + index + 1)
            residual[:, 1:] += hidden[:, 1:]
            return hidden, residual

        return run


def whole_pass(input_ids, positions):
    decoder = Decoder()
    hidden, residual = decoder.embed_input_ids(input_ids), None
    for layer in decoder.layers:
        hidden, residual = layer(positions, hidden, residual)
    return decoder.norm(hidden, residual)[0]


# The batch is packed in another order in every stage; a and b are on their way, c and d decode, d ends after two.
A, B = [11, 12, 13], [21, 22]
BATCHES = [("a", "c", "b", "d"), ("c", "b", "a", "d"), ("b", "a", "c")]


def test_stages_give_what_one_pass_gives_and_run_each_token_once_in_each_layer() -> None:
    from pytest_npubench.extensions.vllm.layered.stage_pass import StageStates, run_stage

    decoder, states = Decoder(), StageStates()
    flight = set_off({"a": 3, "b": 2}, NUM_LAYERS, LayeredSettings(num_layer_groups=3))
    for number, names in enumerate(BATCHES):
        assert flight is not None
        tokens = {"a": A, "b": B, "c": [100 + number], "d": [200 + number]}
        starts = {"a": 7, "b": 0, "c": 30 + number, "d": 40 + number}
        input_ids = torch.tensor([token for name in names for token in tokens[name]])
        positions = torch.tensor([starts[name] + offset for name in names for offset in range(len(tokens[name]))])
        rows = split_rows(names, [len(tokens[name]) for name in names], flight.stage.requests)
        output = run_stage(decoder, flight.stage, rows, input_ids, positions, states)
        wanted = whole_pass(input_ids, positions)
        compared = slice(None) if flight.stage.is_last else torch.from_numpy(rows.rest_tokens)
        assert torch.equal(output[compared], wanted[compared])
        assert output.shape == wanted.shape
        if not flight.stage.is_last:
            assert not output[[index for _, span in rows.staged for index in range(span.start, span.stop)]].any()
        flight = flight.after_stage()
    assert flight is None
    assert set(decoder.ran.values()) == {1}
    assert len(decoder.ran) == (len(A) + len(B) + 3 + 2) * NUM_LAYERS


def test_without_other_rows_only_the_group_runs() -> None:
    from pytest_npubench.extensions.vllm.layered.stage_pass import StageStates, run_stage

    decoder, states = Decoder(), StageStates()
    flight = set_off({"a": 3}, NUM_LAYERS, LayeredSettings(num_layer_groups=2))
    input_ids, positions, ran = torch.tensor(A), torch.arange(3), []
    while flight is not None:
        before = sum(decoder.ran.values())
        output = run_stage(decoder, flight.stage, split_rows(["a"], [3], ["a"]), input_ids, positions, states)
        ran.append(sum(decoder.ran.values()) - before)
        flight = flight.after_stage()
    assert ran == [3 * 3, 3 * 2]
    assert torch.equal(output, whole_pass(input_ids, positions))


def test_hidden_states_are_counted_and_dropped() -> None:
    from pytest_npubench.extensions.vllm.layered.stage_pass import StageStates

    states = StageStates()
    rows = split_rows(["a", "c", "b"], [3, 1, 2], ["a", "b"])
    states.keep(rows, torch.ones(6, HIDDEN), torch.ones(6, HIDDEN))
    assert states.num_bytes == 5 * 2 * HIDDEN * 4
    assert sum(part.untyped_storage().nbytes() for pair in states._kept.values() for part in pair) == states.num_bytes
    states.drop_all_but(["b"])
    assert states.num_bytes == 2 * 2 * HIDDEN * 4
    states.drop_all_but([])
    assert (states.num_bytes, states.peak_bytes) == (0, 5 * 2 * HIDDEN * 4)


def test_distinct_experts_are_counted_behind_routers() -> None:
    from pytest_npubench.extensions.vllm.layered.router_counter import RouterCounter

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Identity()
            self.shared_expert_gate = torch.nn.Identity()

        def forward(self, logits):
            self.shared_expert_gate(logits)
            return self.gate(logits)

    counter, model = RouterCounter(2), torch.nn.Sequential(Block(), Block())
    counter.attach(model)
    model[0](torch.tensor([[9.0, 1, 2, 8, 0, 0], [0, 1, 2, 8, 3, 9]]))  # {0, 3} and {3, 5}
    assert (counter.num_routers, counter.num_calls, counter.num_activations) == (2, 1, 3)
    model(torch.tensor([[9.0, 1, 2, 8, 0, 0]]))
    assert (counter.num_calls, counter.num_activations) == (3, 3 + 2 + 2)


@given(st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=8))
def test_rows_against_a_walk_over_the_tokens(batch: list[tuple[int, bool]]) -> None:
    names = [f"r{index}" for index in range(len(batch))]
    staged = {name for name, (_, on_its_way) in zip(names, batch, strict=True) if on_its_way}
    rows = split_rows(names, [count for count, _ in batch], staged)

    owner = [name for name, (count, _) in zip(names, batch, strict=True) for _ in range(count)]
    assert rows.num_tokens == len(owner)
    assert rows.rest_tokens.tolist() == [index for index, name in enumerate(owner) if name not in staged]
    assert rows.rest_requests.tolist() == [index for index, name in enumerate(names) if name not in staged]
    assert rows.rest_counts.tolist() == [batch[index][0] for index in rows.rest_requests]
    assert [name for name, _ in rows.staged] == [name for name in names if name in staged]
    for name, span in rows.staged:
        assert [index for index, other in enumerate(owner) if other == name] == list(range(span.start, span.stop))
    assert rows.num_staged_tokens == sum(name in staged for name in owner)
