"""The engine beside transformers on the same weights: logits of ragged batches, and tokens under plans of any cut."""

from __future__ import annotations

from importlib.util import find_spec
from random import Random
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

from engines.hugging_face import greedy, logits, random_model, save  # noqa: E402
from pytest_npubench.engines.torch_moe import TorchExecutor  # noqa: E402
from pytest_npubench.engines.torch_moe.attention import attention_kernel  # noqa: E402
from pytest_npubench.engines.torch_moe.checkpoint import load_weights  # noqa: E402
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache  # noqa: E402
from pytest_npubench.engines.torch_moe.model import MoeModel  # noqa: E402
from pytest_npubench.engines.torch_moe.ragged import ragged_batch  # noqa: E402
from pytest_npubench.serving.iteration import PrefillRow  # noqa: E402

from .driving import drive  # noqa: E402
from .small_shapes import SHAPES  # noqa: E402

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
TOLERANCE = 1e-4
HOST = torch.device("cpu")


class Pair(NamedTuple):
    """The same weights twice: transformers' model, the directory it was saved to, and ours."""

    shape: Any
    theirs: Any
    folder: Any
    ours: Any


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: shape.name)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    shape = request.param
    theirs = random_model(shape, seed=4)
    folder = save(theirs, tmp_path_factory.mktemp(shape.name))
    weights = load_weights(shape, folder, device=HOST, dtype=torch.float32)
    return Pair(shape, theirs, folder, MoeModel(shape, weights, attention_kernel(shape, empty_cache(shape))))


def empty_cache(shape: Any) -> PagedKvCache:
    return PagedKvCache(shape, capacity_tokens=256, block_size_tokens=4, device=HOST, dtype=torch.float32)


def tokens_of(shape: Any, request: int, count: int) -> list[int]:
    return torch.randint(shape.vocab_size, (count,), generator=torch.Generator().manual_seed(request)).tolist()


class Run:
    """Our model with a cache, a list of rows at a time."""

    def __init__(self, pair: Pair, prompts: dict[int, list[int]]) -> None:
        self.shape, self.model, self.prompts = pair.shape, pair.ours, prompts
        self.kv = empty_cache(pair.shape)

    def logits(self, decode: list[PrefillRow], prefill: list[PrefillRow], groups: list[tuple[int, int]]) -> Any:
        """[T, vocab_size] of all rows, through the layers a group at a time."""
        for row in (*decode, *prefill):
            self.kv.reserve(row.request, row.first_token + row.num_tokens)
        with torch.inference_mode():
            inputs = self.model.prepare(ragged_batch(decode, [], prefill, self.kv))
            ids = [token for r, first, n in (*decode, *prefill) for token in self.prompts[r][first : first + n]]
            hidden = self.model.embed(torch.tensor(ids))
            for first, stop in groups:
                hidden, _ = self.model.run_layers(first, stop, hidden, inputs, self.kv)
            return self.model.logits(hidden)


def close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


def test_prefill(pair: Pair) -> None:
    """Three prompts at once, one of them a single token, one longer than the sliding window."""
    prompts = {request: tokens_of(pair.shape, request, count) for request, count in ((1, 29), (2, 1), (5, 8))}
    rows = [PrefillRow(request, 0, len(tokens)) for request, tokens in prompts.items()]
    ours = Run(pair, prompts).logits([], rows, [(0, pair.shape.num_layers)])
    close(ours, torch.cat([logits(pair.theirs, tokens) for tokens in prompts.values()]))


def test_chunks_and_layer_groups(pair: Pair) -> None:
    """The second prompt starts when the first is in its second chunk, and layers run in two groups."""
    prompts = {request: tokens_of(pair.shape, request, count) for request, count in ((1, 29), (2, 21))}
    run, groups = Run(pair, prompts), [(0, 1), (1, pair.shape.num_layers)]
    expected = {request: logits(pair.theirs, tokens) for request, tokens in prompts.items()}
    close(run.logits([], [PrefillRow(1, 0, 11)], groups), expected[1][:11])
    both = run.logits([], [PrefillRow(2, 0, 9), PrefillRow(1, 11, 18)], groups)
    close(both, torch.cat((expected[2][:9], expected[1][11:])))
    close(run.logits([], [PrefillRow(2, 9, 12)], groups), expected[2][9:])


def test_decode_beside_prefill(pair: Pair) -> None:
    """Rows of one token at contexts of 3, 17 and 30, with a prompt's chunk behind them."""
    prompts = {request: tokens_of(pair.shape, request, count) for request, count in ((1, 30), (2, 3), (3, 17), (4, 20))}
    run, groups = Run(pair, prompts), [(0, pair.shape.num_layers)]
    for request in (1, 2, 3):
        run.logits([], [PrefillRow(request, 0, len(prompts[request]) - 1)], groups)
    run.logits([], [PrefillRow(4, 0, 6)], groups)
    decode = [PrefillRow(request, len(prompts[request]) - 1, 1) for request in (1, 2, 3)]
    ours = run.logits(decode, [PrefillRow(4, 6, 14)], groups)
    expected = [logits(pair.theirs, prompts[request])[-1:] for request in (1, 2, 3)]
    close(ours, torch.cat((*expected, logits(pair.theirs, prompts[4])[6:])))


def test_greedy_tokens(pair: Pair) -> None:
    lengths = {2: (27, 6), 5: (1, 8), 6: (12, 5)}
    served = TorchExecutor(pair.shape, kv_capacity_tokens=128, block_size_tokens=8, weights=pair.folder)
    expected = {r: greedy(pair.theirs, served.prompts(r, count), outputs) for r, (count, outputs) in lengths.items()}
    assert drive(served, lengths, Random(3))[0] == expected


def test_sharded_directories(pair: Pair, tmp_path: Any) -> None:
    """Many files with an index hold the same tensors as one."""
    folder = save(pair.theirs, tmp_path, max_shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    sharded = load_weights(pair.shape, folder, device=HOST, dtype=torch.float32)
    single = load_weights(pair.shape, pair.folder, device=HOST, dtype=torch.float32)
    for ours, theirs in zip(sharded.layers, single.layers, strict=True):
        assert torch.equal(ours.gate_up, theirs.gate_up)
        assert torch.equal(ours.qkv, theirs.qkv)
