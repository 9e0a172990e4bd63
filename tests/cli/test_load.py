"""npubench load: what it prints, its exit status, and everything that keeps it from measuring."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from time import monotonic

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install pytest-npubench[http]")

from aiohttp import web
from campaign.server.stand_in import StandIn, refuses, sometimes, streams
from known_answer import KnownAnswer

from pytest_npubench.campaign import served_load
from pytest_npubench.engines.http import shared_load
from pytest_npubench.engines.http.load_run import run_load
from pytest_npubench.serving.arrivals import uniform
from pytest_npubench.suites.server import lateness
from pytest_npubench.suites.server.loader import Loader

KEY = "sk-0123456789-abcdefghijklmnop"
KNOWN = KnownAnswer(ttft_s=0.06, itl_s=0.02)
SLO = ("--slo-ttft", "20s", "--slo-tbt", "10s")
LENGTHS = "input_tokens,output_tokens\n5,3\n9,2\n14,4\n20,3\n"


@pytest.fixture
def load(call, tmp_path, monkeypatch):
    """load(stand_in, ...) is eight requests to it at 40 a second."""
    for name in ("URL", "MODEL", "KEY_VARIABLE", "CA_FILE"):
        monkeypatch.delenv(f"NPUBENCH_SERVER_{name}", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(lateness, "SHARE", 1e6)  # what the machine does besides puts the client off
    path = tmp_path / "lengths.csv"
    path.write_text(LENGTHS, encoding="utf-8")

    def run(stand_in, *arguments, rate=("--rate", 40)):
        server = stand_in.start()
        try:
            fixed = ("--url", server.url, "--workload", path, "--num-requests", 8, "--warmup", 0, *(rate or ()))
            return call("load", *fixed, *arguments)
        finally:
            server.stop()

    return run


def test_the_requests_are_written_as_a_run_that_can_be_calibrated_on(load, tmp_path):
    """Eight went out, eight lines came, with the lengths and the times that the server is known by."""
    path = tmp_path / "requests.jsonl"
    assert load(StandIn(known=KNOWN), "--requests-out", path).status == 0
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 8
    assert {(row["input_toks"], row["output_toks"]) for row in rows} <= {(5, 3), (9, 2), (14, 4), (20, 3)}
    assert all(row["first_token_ts"] - row["queued_ts"] >= 0.06 for row in rows)
    assert all(row["last_token_ts"] - row["queued_ts"] >= 0.059 + 0.02 * (row["output_toks"] - 1) for row in rows)


@pytest.mark.parametrize("options", [("--rate", 40, "--requests-out"), ("--sweep", *SLO, "--output")])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_sent(load, tmp_path, options):
    stand_in = StandIn(known=KNOWN)
    done = load(stand_in, *options, tmp_path / "none" / "it", rate=None)
    assert (done.status, stand_in.bodies) == (2, [])
    assert "it: No such file or directory" in done.err


def test_a_load_that_ends_early_keeps_the_file_that_was_there(load, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    path = tmp_path / "requests.jsonl"
    path.write_text("precious")
    monkeypatch.setattr(Loader, "send", interrupted)
    assert load(StandIn(), "--requests-out", path).status == 130
    assert path.read_text() == "precious"
    assert not list(tmp_path.glob(".npubench-*"))


def test_json_has_every_metric_and_how_the_client_kept_up(load):
    stand_in = StandIn(known=KNOWN)
    answer = load(stand_in, *SLO, "--json").json
    metrics = {metric["name"]: metric for metric in answer["metrics"]}
    assert metrics["slo_attainment"]["value"] == 1.0
    assert metrics["ttft_p50_s"]["value"] >= 0.06
    assert {"tbt_worst_s", "e2e_p99_s", "output_tokens_per_s"} <= set(metrics)
    assert all(metric["value"] is not None or metric["note"] for metric in answer["metrics"])
    assert answer["attained"] is True
    assert answer["failures"] == {}
    assert answer["server"]["software"] == "vllm 0.32.0"
    assert answer["client"]["late"] is None
    assert len(stand_in.bodies) == 8


def test_several_processes_send_the_same_requests(load):
    """The same lengths at the same seed, whoever sends them."""
    one, two = StandIn(known=KNOWN), StandIn(known=KNOWN)
    assert load(one, "--seed", 3).status == 0
    answer = load(two, "--seed", 3, "--processes", 2)
    assert answer.status == 0, answer.err
    assert "from 2 processes" in answer.err
    lengths = [sorted((len(body["prompt"]), body["max_tokens"]) for body in sent.bodies) for sent in (one, two)]
    assert lengths[0] == lengths[1]


def test_a_lost_process_is_no_measurement(load, monkeypatch):
    """Its requests are told apart from failures of the server."""

    def lost(endpoint, requests, number):
        run = run_load(endpoint, requests)
        answers = [replace(run.answers[0], dispatched_s=None, token_times_s=(), failed="lost with x"), *run.answers[1:]]
        return replace(run, answers=tuple(answers), lost=("process 1 of 2 of the client was lost",))

    monkeypatch.setattr(shared_load, "run_shared_load", lost)
    answer = load(StandIn(known=KNOWN), "--processes", 2)
    assert answer.status == 2
    assert "failed     1 lost with a process of the client" in answer.out
    assert "process 1 of 2 of the client was lost" in answer.err


def test_the_table_says_who_was_asked_and_what_came_out(load):
    answer = load(StandIn(known=KNOWN), *SLO)
    assert answer.status == 0, answer.err
    for words in (
        "server     m by vllm 0.32.0 at http://127.0.0.1",
        "failed     none",
        "counted    8 by running usage",
        "SLO        TTFT 20 s and every TBT 10 s: attained (100.00% of the arrived requests, 90% wanted)",
        "ttft_mean_s",
        "tbt_worst_s",
        "loop_stall_p99_s",
        "its own    no /metrics: HTTP 404",
    ):
        assert words in answer.out
    assert "expert" not in answer.out


def test_a_sweep_finds_where_a_server_has_too_few_slots(load, tmp_path):
    """Two slots of 60 ms are 33 requests a second; where limits are beyond what it can do, no rate attains."""
    slots = asyncio.Semaphore(2)

    async def queued(number, request):
        asked = (await request.json())["max_tokens"]
        async with slots:
            await asyncio.sleep(0.06)
            return await streams(*[json.dumps({"choices": [{"text": "a"}]})] * asked, "[DONE]")(number, request)

    page = tmp_path / "sweep.html"
    sweeping = ("--sweep", "--num-requests", 24, "--output", page)
    found = load(StandIn(fault=queued), *sweeping, "--slo-ttft", "250ms", "--slo-tbt", "1s", "--json", rate=None)
    assert found.status == 0, found.err
    answer = found.json
    low, high = (answer["rates"][at]["rate_per_s"] for at in (0, -1))
    assert 16 < answer["capacity"]["rate_per_s"] < 70
    assert low <= answer["knee_rate_per_s"] <= high
    assert len(answer["rates"]) == 10
    attainments = [row["attainment"] for row in answer["rates"]]
    assert max(attainments) >= 0.9 > min(attainments), "rates on both sides of the capacity were tried"
    slots = asyncio.Semaphore(2)
    found = load(StandIn(fault=queued), *sweeping, "--slo-ttft", "30ms", "--slo-tbt", "1s", rate=None)
    assert found.status == 1
    assert "capacity   below " in found.out
    assert "in 1 runs, below 90%" in found.out
    assert "…" not in found.out, "100 columns are enough"
    assert '<h1 class="neutral">capacity below ' in page.read_text(encoding="utf-8")
    assert "Latency against throughput" in page.read_text(encoding="utf-8")
    assert "SLO attainment by rate" in page.read_text(encoding="utf-8")


def answering(seen):
    """A fault in the place of answers: keeps when each request came and when its answer ended, by its last text."""

    async def answer(number, request):
        body, came_s = await request.json(), monotonic()
        reply = await streams(*[json.dumps({"choices": [{"text": "a"}]})] * body["max_tokens"], "[DONE]", wait_s=0.05)(
            number, request
        )
        text = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        seen[text] = (body, came_s, monotonic())
        return reply

    return answer


def test_the_server_sees_the_prompts_of_a_file_and_no_others(load, tmp_path, monkeypatch):
    """In the file's order, again from its first where there are more requests; an answer's length may be given."""
    monkeypatch.setattr(served_load, "poisson", lambda rate_per_s, n, seed: uniform(rate_per_s, n))  # none overtakes
    text, jsonl = tmp_path / "a.txt", tmp_path / "b.jsonl"
    text.write_text("one two\n\n  three  \n", encoding="utf-8")
    jsonl.write_text('{"prompt": "four"}\n{"prompt": "five\\nsix", "output_tokens": 7}\n', encoding="utf-8")
    for path, wanted, lengths in ((text, ["one two", "three"], None), (jsonl, ["four", "five\nsix"], 7)):
        stand_in = StandIn(known=KNOWN)
        answer = load(stand_in, "--prompts", path, "--json", rate=("--rate", 10))
        assert answer.status == 0, answer.err
        assert [body["prompt"] for body in stand_in.bodies] == wanted * 4
        assert lengths is None or {body["max_tokens"] for body in stand_in.bodies[1::2]} == {lengths}


def test_a_turn_comes_after_its_think_time_and_brings_what_was_said(load, tmp_path):
    path, seen = tmp_path / "talks.jsonl", {}
    turns = [{"prompt": f"p{at}", "answer": f"a{at}", "output_tokens": 2, "think_s": 1.0} for at in range(3)]
    path.write_text(json.dumps({"turns": turns}) + "\n" + '{"prompt": "alone"}', encoding="utf-8")
    chat = ("--api", "chat", "--num-requests", 4, "--slo-ttft", "150ms", "--slo-tbt", "10s", "--json")
    answer = load(StandIn(fault=answering(seen)), "--prompts", path, *chat)
    assert answer.json["failures"] == {}
    says = [(message["role"], message["content"]) for message in seen["p2"][0]["messages"]]
    assert says == [("user", "p0"), ("assistant", "a0"), ("user", "p1"), ("assistant", "a1"), ("user", "p2")]
    for before, after in (("p0", "p1"), ("p1", "p2")):
        assert seen[after][1] >= seen[before][2] + 1.0
    metrics = {metric["name"]: metric["value"] for metric in answer.json["metrics"]}
    assert metrics["ttft_p99_s"] < 1.0, "the think time is no part of a TTFT"
    refused = load(StandIn(known=KNOWN), "--prompts", path, "--processes", 2)
    assert "the turns of a conversation are sent by one process" in refused.err


def test_the_servers_own_figures_stand_beside_ours(load):
    stand_in, own = StandIn(known=KNOWN), stand_in_metrics("sglang:num_running_reqs 4\nsglang:token_usage 0.25\n")
    stand_in.application = lambda made=stand_in.application: own(made())
    assert load(stand_in, "--json").json["server_says"]["kv_usage_mean_fraction"] == 0.25
    assert "its own    4 running (4 at most), KV use 25.0%, at most 25.0%\n" in load(stand_in).out


def stand_in_metrics(text):
    """Adds /metrics with that text to an application."""

    async def metrics(request):
        return web.Response(text=text)

    def added(app):
        app.router.add_get("/metrics", metrics)
        return app

    return added


def test_a_prefix_cache_is_hit_by_the_share_that_was_asked_for(load):
    """A stand-in of one: of a prompt it has the longest beginning that a prompt before it had. Prompts have 5 tokens or
    more, drawn of 900, so those that share nothing have hardly one token in common."""
    for fraction, num_hits in (("0.5", 3), ("1", 7), (None, 0)):
        stand_in = StandIn(known=KNOWN)
        shared = () if fraction is None else ("--shared-prefix", 4, "--shared-fraction", fraction)
        assert load(stand_in, *shared).status == 0
        cache, hits = set(), 0
        for body in stand_in.bodies:
            hits += tuple(body["prompt"][:4]) in cache
            cache.add(tuple(body["prompt"][:4]))
        assert hits == num_hits
        assert len({tuple(body["prompt"]) for body in stand_in.bodies}) == 8


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", " \n", "has no prompt; want one a line"),
        ("b.jsonl", '{"prompt": "x"}\n{"prompt": 3}', "b.jsonl, line 2: Expected `str`, got `int`"),
        ("b.jsonl", '{"turns": []}', "line 1: Expected `array` of length >= 1"),
        ("b.jsonl", '{"turns": [{"prompt": "x", "think_s": -1}]}', "Expected `float` >= 0.0"),
        ("b.jsonl", "[" * 9999, "line 1:"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(load, tmp_path, name, text, words):
    (tmp_path / name).write_text(text, encoding="utf-8")
    stand_in = StandIn()
    answer = load(stand_in, "--prompts", tmp_path / name)
    assert (answer.status, stand_in.bodies) == (2, [])
    assert words in answer.err
    assert "Traceback" not in answer.err


def test_without_limits_nothing_is_judged(load):
    answer = load(StandIn(known=KNOWN), "--json").json
    assert (answer["slo"], answer["attained"]) == (None, None)


@pytest.mark.parametrize(("attainment", "status"), [("0.75", 0), ("76%", 1)])
def test_the_exit_status_is_1_where_too_few_attain(load, attainment, status):
    """Every fourth request is refused."""
    stand_in = StandIn(known=KNOWN, fault=sometimes(refuses(429), every=4))
    answer = load(stand_in, *SLO, "--attainment", attainment)
    assert answer.status == status, answer.err
    assert "failed     2 HTTP 429" in answer.out


def test_the_chat_api_and_a_body_of_ones_own(load):
    stand_in = StandIn(known=KNOWN)
    assert load(stand_in, "--api", "chat", "--extra-body", '{"top_k": 1}').status == 0
    assert all("messages" in body and body["top_k"] == 1 for body in stand_in.bodies)


def test_the_seed_gives_the_same_lengths_and_new_prompts(load):
    first, second = StandIn(known=KNOWN), StandIn(known=KNOWN)
    assert load(first, "--seed", 3).status == load(second, "--seed", 3).status == 0
    lengths = [sorted((len(body["prompt"]), body["max_tokens"]) for body in one.bodies) for one in (first, second)]
    assert lengths[0] == lengths[1]
    assert first.bodies[0]["prompt"] != second.bodies[0]["prompt"]


def test_a_late_client_is_shown_and_is_no_measurement(load, monkeypatch):
    monkeypatch.setattr(lateness, "SHARE", 1e-9)
    answer = load(StandIn(known=KNOWN), *SLO)
    assert answer.status == 2
    assert "ttft_mean_s" in answer.out
    assert "the client was late itself" in answer.err


def test_no_answer_is_no_measurement_and_names_the_failures(load, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    answer = load(StandIn(fault=refuses(500, f"bad key {KEY}")))
    assert answer.status == 2
    assert "no request was answered: 8 of 8: HTTP 500" in answer.err
    assert KEY not in answer.err + answer.out
    assert answer.out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--query", "a b"), "NPUBENCH_SERVER_QUERY: want NAME=VALUE"),
        (("--header", "a b=HOME"), "NPUBENCH_SERVER_HEADERS: want NAME=VARIABLE"),
        (("--header", "content-Length=HOME"), "content-Length is not for it to say; our own are accept, "),
        (("--header", "api-key=NOT_THERE"), "NOT_THERE is not set; it holds the API key"),
        (("--dialect", "azure"), "AZURE_OPENAI_API_KEY is not set"),
        (("--extra-body", '{"max_tokens": 3}'), "max_tokens is the workload's"),
        (("--requests", "file"), "unrecognized arguments: --requests file; did you mean '--requests-out'?"),
        (("--key-variable", "NOT_THERE"), "NOT_THERE is not set; it holds the API key"),
        (("--key-variable", "sk_4Xb9"), "the variable that it names is not set"),
        (("--key-variable", "AKIA4XB9"), "the variable that it names is not set"),
        (("--key-variable", "sk-4Xb9"), "want the name of the one that holds the API key, not the key"),
        (("--workload", "nobody-knows-it"), "no workload is named 'nobody-knows-it'"),
        (("--slo-ttft", "5", "--slo-tbt", "1s"), "want a number with a unit"),
        (("--api", "chat", "--prompt", "tokens"), "the chat API takes no token ids"),
        (("--max-total-tokens", 2), "max_total_tokens=2"),
        (("--slo-ttft", "5s"), "want --slo-ttft and --slo-tbt together"),
        (("--attainment", "0.9"), "--attainment is of an SLO"),
        (("--prompts", "x", "--shared-prefix", "3"), "--shared-prefix is of new prompts: leave out --prompts"),
        (("--prompts", "nowhere.txt"), "nowhere.txt does not exist"),
        (("--output", "x.html"), "--output is of many rates: want --sweep"),
        (("--sweep", *SLO), "argument --sweep: not allowed with argument --rate"),
        (("--attainment", "1.5", *SLO), "want a fraction above 0 and up to 1"),
        (("--processes", "0"), "want a whole number from 1 to 256"),
        (("--processes", "257"), "want a whole number from 1 to 256"),
        (("--rate", "0"), "want requests a second, 1e-06"),
        (("--rate", "x"), "want requests a second, 1e-06"),
        (("--seed", "-1"), "want a whole number from 0"),
        (("--extra-body", "[]"), "want a JSON object"),
        (("--extra-body", "{"), "no JSON"),
        (("--extra-body", '{"model": "x"}'), "model is not for it to say"),
    ],
)
def test_what_cannot_be_measured_is_named(load, arguments, words):
    stand_in = StandIn()
    answer = load(stand_in, *arguments)
    assert answer.status == 2
    assert words in answer.err
    assert "Traceback" not in answer.err
    assert "4X" not in answer.err.upper()
    assert stand_in.bodies == []


USUAL = {"max_tokens", "temperature", "stream_options"}


@pytest.mark.parametrize(
    ("arguments", "wanted", "unwanted"),
    [
        ((), {"max_tokens", "temperature", "ignore_eos", "stream_options"}, set()),
        (("--extra-body", "{}"), {"max_tokens", "temperature", "stream_options"}, {"ignore_eos"}),
        (("--extra-body", '{"max_tokens": null, "temperature": null, "stream_options": null}'), {"stream"}, USUAL),
        (("--extra-body", '{"max_completion_tokens": 3}'), {"max_completion_tokens"}, {"max_tokens"}),
        (("--extra-body", '{"min_tokens": "$output_tokens"}'), {"max_tokens", "min_tokens"}, set()),
        (("--dialect", "openai"), {"messages", "max_completion_tokens"}, {"max_tokens", "temperature", "ignore_eos"}),
        (("--dialect", "vllm"), {"prompt", "max_tokens", "ignore_eos", "temperature"}, set()),
        (("--dialect", "tgi"), {"messages", "max_tokens"}, {"temperature", "ignore_eos"}),
        (("--dialect", "azure", "--key-variable", "MY_KEY"), {"messages"}, {"max_tokens"}),
    ],
)
def test_a_server_is_asked_in_its_dialect(load, monkeypatch, arguments, wanted, unwanted):
    """Whatever the fields are called, each answer has its own length."""
    monkeypatch.setenv("MY_KEY", KEY)
    seen = []

    async def answer(number, request):
        body = await request.json()
        seen.append((body, request.query_string, request.headers.get("api-key")))
        lengths = {body[name] for name in ("max_tokens", "max_completion_tokens", "min_tokens") if name in body}
        assert len(lengths) < 2
        text = json.dumps({"choices": [{"text": "a"}]})
        return await streams(*[text] * min(lengths, default=2), "[DONE]")(number, request)

    assert load(StandIn(fault=answer), *arguments, "--json").status == 0
    for body, query, key in seen:
        assert wanted <= body.keys()
        assert not unwanted & body.keys()
        assert (query, key) == (("api-version=2024-10-21", KEY) if "azure" in arguments else ("", None))


def test_a_refused_field_is_named_with_what_leaves_it_out(load):
    for field, words in (
        ("max_tokens", "dialect openai asks with max_completion_tokens (load --dialect openai)"),
        ("temperature", 'extra_body {"temperature": null} leaves it out (load --extra-body)'),
    ):
        answer = load(StandIn(fault=refuses(400, f"Unsupported parameter: '{field}'")))
        assert f"'{field}'; {words}" in answer.err


def test_what_a_server_may_do_without_is_remarked_on(load):
    """Answers of two tokens, and a model that is not listed."""
    stand_in = StandIn(fault=streams(*[json.dumps({"choices": [{"text": "a"}]})] * 2, "null", "[DONE]"))
    answer = load(stand_in, "--model", "alias", "--extra-body", "{}")
    assert answer.status == 0
    assert "warning: /models does not list alias" in answer.err
    assert "tokens fewer than asked for, measured at its own length" in answer.out
    assert "remark     8 of 8 answers: events without content passed over\n" in answer.out


def test_requests_go_ahead_and_wait_for_a_server_that_is_loading(load, monkeypatch):
    """They are no part of the figures."""
    monkeypatch.setattr("pytest_npubench.cli.asked_server.AGAIN_S", 0.01)

    async def loading(number, request):
        return await refuses(503, "Loading model")(number, request) if number < 3 else None

    for options, status, num_sent in (((), 0, 9), (("--wait-ready", "60s"), 0, 12)):
        stand_in = StandIn(known=KNOWN, fault=loading)
        answer = load(stand_in, "--warmup", 1, *options)
        assert (answer.status, len(stand_in.bodies)) == (status, num_sent)
        assert ("Loading model" in answer.err) is ("--wait-ready 300s waits" in answer.err) is (not options)
    stand_in = StandIn(fault=refuses(503, "Loading model"))
    assert load(stand_in, "--warmup", 1, "--wait-ready", "50ms").status == 2
    assert len(stand_in.bodies) < 9, "it is not loaded while it is loading"


def test_no_server_is_named(call, monkeypatch):
    monkeypatch.delenv("NPUBENCH_SERVER_URL", raising=False)
    answer = call("load", "--workload", "layered-sharegpt", "--rate", 1)
    assert answer.status == 2
    assert "want --url or NPUBENCH_SERVER_URL" in answer.err


def test_help_says_what_the_exit_status_means(call):
    answer = call("load", "--help")
    assert answer.status == 0
    assert "1 too few requests attain their SLO" in answer.out
    assert "example: npubench load --url" in answer.out


def test_the_answer_is_plain_json(load):
    assert json.loads(json.dumps(load(StandIn(known=KNOWN), "--json").json))["clock"] == "wall"
