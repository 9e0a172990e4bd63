"""vLLM's own client beside ours (benchmarks/bench_serve.py): the same load, and figures that can be compared.

What needs vLLM skips without it. No test asserts a time; what is compared is what one client saw with what the server's
settings allow, counts of tokens, and one client with the other.
"""

from __future__ import annotations

import json
import math
import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.vllm.process import PYTHON_VARIABLE, vllm_python

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SHAPE = decoder_shape("small-dense")  # its steps take longer than a server needs to pass a token on
NAMES = ("bench_serve", "bench_serve_clients", "bench_serve_servers")


@pytest.fixture(scope="module")
def scripts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield tuple(map(import_module, NAMES))


@pytest.fixture(scope="module")
def bench(scripts):
    return scripts[0]


@pytest.fixture(scope="module")
def clients(scripts):
    return scripts[1]


@pytest.fixture(scope="module")
def servers(scripts):
    return scripts[2]


def _block(clients, tokens=(4,), **changes):
    return clients.Block(figures_s={**dict.fromkeys(clients.FIGURES, 0.02), **changes}, output_tokens=tokens)


def test_a_ratio_is_the_geometric_mean_of_its_pairs(bench, clients):
    """Logarithms 0.1 and 0.3: mean 0.2, standard error 0.1, one degree of freedom, whose quantile is a tangent."""
    pairs = [(_block(clients, **{"mean TTFT": 0.02 * math.exp(log)}), _block(clients)) for log in (0.1, 0.3)]
    found = bench.ratios(pairs, coverage=0.4)
    one = found["mean TTFT"]
    each = 1 - 0.6 / 6
    half_width = math.tan(math.pi * each / 2) * 0.1
    assert one.value == pytest.approx(math.exp(0.2))
    assert (one.low, one.high) == pytest.approx((math.exp(0.2 - half_width), math.exp(0.2 + half_width)))
    assert one.spread == pytest.approx(math.sqrt(0.02))
    assert one.agrees
    assert (found["mean ITL"].low, found["mean ITL"].high) == (1.0, 1.0)


def test_of_a_figure_that_is_0_no_ratio_is_formed(bench, clients, capsys):
    """Tokens that come in one read have one time."""
    pairs = [(_block(clients, **{"median ITL": 0.0}), _block(clients))] * 2
    assert "median ITL" not in bench.ratios(pairs)
    bench.show("made", pairs)
    assert "median ITL       0.000    20.000   no ratio" in capsys.readouterr().out


def test_a_client_that_is_off_by_a_tenth_differs(bench, clients):
    pairs = [(_block(clients, **{"mean ITL": 0.022 + wobble}), _block(clients)) for wobble in (0, 1e-5, 2e-5, 1e-5)]
    assert not bench.ratios(pairs)["mean ITL"].agrees


def test_blocks_alternate_and_pairs_are_ours_and_theirs(bench, clients, monkeypatch):
    order = []

    class Theirs:
        def run(self, url, load):
            order.append("vllm")
            return _block(clients, tokens=(2,))

    def ours(url, load):
        order.append("ours")
        return _block(clients, tokens=(1,))

    monkeypatch.setattr(bench, "run_ours", ours)
    pairs = bench.alternating("", None, Theirs(), 4)
    assert order == ["ours", "vllm", "vllm", "ours"] * 2
    assert [(one.output_tokens, two.output_tokens) for one, two in pairs] == [((1,), (2,))] * 4


def test_figures_count_from_the_sending(clients):
    """Sent at 1 s though due at 0; tokens at 1.5, 1.7, 1.7 and 2.1 s, two of them in one read."""
    request = HttpRequest(id=0, arrival_s=0.0, prompt="a", output_tokens=4)
    answer = HttpAnswer(
        request=request,
        dispatched_s=1.0,
        token_times_s=(1.5, 1.7, 1.7, 2.1),
        counted_by="running usage",
        failed=None,
    )
    found = clients.our_figures([answer])
    assert found["mean TTFT"] == pytest.approx(0.5)
    assert found["mean TPOT"] == pytest.approx(0.2)
    assert found["mean ITL"] == pytest.approx(0.2)
    assert found["median ITL"] == pytest.approx(0.2)
    assert tuple(found) == clients.FIGURES


def test_the_tokenizer_has_a_token_a_word(servers, tmp_path):
    """transformers reads it, as vLLM does."""
    transformers = pytest.importorskip("transformers")
    servers.prepare(tmp_path, SHAPE)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "model"))
    assert tokenizer("t5 t2047 t0").input_ids == [5, 2047, 0]
    assert tokenizer.decode([7, 1, 300]) == "t7 t1 t300"


def test_the_load_is_the_same_for_both(clients, tmp_path):
    load = clients.made_load(5, 4.0, vocab_size=512, seed=3)
    assert load == clients.made_load(5, 4.0, vocab_size=512, seed=3)
    assert load != clients.made_load(5, 4.0, vocab_size=512, seed=4)
    clients.write_conversations(tmp_path / "load.json", load)
    turns = [entry["conversations"] for entry in json.loads((tmp_path / "load.json").read_text(encoding="utf-8"))]
    assert tuple(prompt["value"] for prompt, _ in turns) == load.prompts
    assert tuple(len(answer["value"].split()) for _, answer in turns) == load.output_tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory, servers):
    if not os.environ.get(PYTHON_VARIABLE) and find_spec("vllm") is None:
        pytest.skip(f"vLLM is not installed here, and {PYTHON_VARIABLE} names no environment with it")
    made = tmp_path_factory.mktemp("bench-serve")
    servers.prepare(made, SHAPE)
    return made


@pytest.fixture(scope="module")
def vllm_client(clients, folder):
    with clients.VllmClient(folder, vllm_python()) as client:
        yield client


def test_both_clients_see_the_known_times_and_no_earlier_ones(bench, clients, servers, folder, vllm_client):
    """An event cannot be seen before it was due, and its lateness is the server's and the machine's for both alike."""
    load = clients.made_load(12, 8.0, vocab_size=SHAPE.vocab_size)
    with servers.known_server(folder) as url:
        pairs = bench.alternating(url, load, vllm_client, 4)
    bench.show("known-answer server", pairs, bench.TRUTH_S)
    for ours, theirs in pairs:
        assert ours.output_tokens == theirs.output_tokens == load.output_tokens
        for block in (ours, theirs):
            assert block.figures_s["mean TTFT"] >= servers.KNOWN_TTFT_S
            assert block.figures_s["median TTFT"] >= servers.KNOWN_TTFT_S
    # a client may differ from the other by chance, or by less than a twentieth of what is to be seen, or see the first
    # token sooner, which is never before it was due, as above
    for figure, ratio in bench.ratios(pairs).items():
        is_sooner = "TTFT" in figure and ratio.value < 1
        assert ratio.agrees or 0.95 < ratio.value < 1.05 or is_sooner, (figure, ratio)


def test_both_clients_ask_vllm_for_the_same_and_get_it(bench, clients, servers, folder, vllm_client):
    load = clients.made_load(8, 4.0, vocab_size=SHAPE.vocab_size, seed=1)
    with servers.vllm_server(folder, vllm_python()) as url:
        bench.alternating(url, load, vllm_client, 1)
        pairs = bench.alternating(url, load, vllm_client, 4)
    bench.show("vllm serve", pairs)
    for ours, theirs in pairs:
        assert ours.output_tokens == theirs.output_tokens == load.output_tokens
