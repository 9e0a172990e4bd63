"""What a server says of itself at /metrics: texts in the form of each one's public pages, and servers that say nothing.

Forms of the series: docs.vllm.ai/en/stable/usage/metrics, docs.sglang.io/references/production_metrics.html,
huggingface.co/docs/text-generation-inference/reference/metrics, and the README of llama.cpp's server. The numbers are
the tests' own.
"""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install pytest-npubench[http]")

from aiohttp import web
from engines.http.conftest import serve  # noqa: F401 - a fixture
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.backends.server_address import ServerAddress
from pytest_npubench.suites.server.own_figures import Look, OwnFigures, Watch, read

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
vllm:num_requests_running{{engine="1",model_name="m"}} 1.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 2.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.5
vllm:kv_cache_usage_perc{{engine="1",model_name="m"}} 0.3
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {grown}
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} 100.0
vllm:prefix_cache_hits_created{{engine="0",model_name="m"}} 1.7e+09
vllm:num_preemptions_total{{engine="0",model_name="m"}} {grown}
vllm:request_queue_time_seconds_bucket{{engine="0",le="0.3",model_name="m"}} 100.0
vllm:request_queue_time_seconds_count{{engine="0",model_name="m"}} {grown}
vllm:request_queue_time_seconds_sum{{engine="0",model_name="m"}} 12.5
"""
SGLANG = """sglang:num_running_reqs{{model_name="meta-llama/Llama-3.1-8B-Instruct"}} {running}
sglang:num_queue_reqs{{model_name="meta-llama/Llama-3.1-8B-Instruct"}} 2.0
sglang:token_usage{{model_name="meta-llama/Llama-3.1-8B-Instruct"}} 0.28
sglang:cache_hit_rate{{model_name="meta-llama/Llama-3.1-8B-Instruct"}} 0.0075
sglang:prompt_tokens_total{{model_name="meta-llama/Llama-3.1-8B-Instruct"}} 8.0e+06
sglang:queue_time_seconds_sum{{model_name="m"}} {grown}
sglang:queue_time_seconds_count{{model_name="m"}} {grown}
sglang:num_retracted_requests_total{{model_name="m"}} 3
"""
TGI = """# TYPE tgi_queue_size gauge
tgi_queue_size 2
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size {running}
tgi_request_queue_duration_sum {grown}
tgi_request_queue_duration_count {grown}
tgi_request_queue_duration_bucket{{le="+Inf"}} 9
"""
LLAMACPP = """# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing {running}
llamacpp:requests_deferred 2
llamacpp:kv_cache_usage_ratio 0.28
"""


def looks(form: str) -> list[Look]:
    return [read(form.format(running=running, grown=grown).encode()) for running, grown in ((3, 100), (5, 110))]


@pytest.mark.parametrize(
    ("form", "running_mean", "wanted"),
    [
        (
            VLLM,
            5.0,
            {"kv_usage_mean_fraction": 0.4, "queue_mean_s": 0.0, "prefix_hit_fraction": 0.0, "num_preemptions": 10},
        ),
        (SGLANG, 4.0, {"kv_usage_mean_fraction": 0.28, "queue_mean_s": 1.0, "num_preemptions": 0}),
        (TGI, 4.0, {"queue_mean_s": 1.0, "kv_usage_mean_fraction": None, "num_preemptions": None}),
        (LLAMACPP, 4.0, {"kv_usage_most_fraction": 0.28, "queue_mean_s": None, "prefix_hit_fraction": None}),
    ],
)
def test_each_server_is_read_by_its_names(form, running_mean, wanted):
    """Between two looks: running requests rise from 3 to 5 (vLLM has one more on a second engine), counters by 10."""
    figures = OwnFigures.of(looks(form))
    assert (figures.running_mean, figures.running_most) == (running_mean, running_mean + 1)
    assert (figures.waiting_mean, figures.waiting_most) == (2, 2)
    assert {name: getattr(figures, name) for name in wanted} == pytest.approx(wanted)


def test_the_worked_example_and_a_server_that_was_started_anew():
    text = "vllm:request_queue_time_seconds_sum {}\nvllm:request_queue_time_seconds_count {}\n"
    first, last = (read(text.format(*ends).encode()) for ends in ((10, 100), (13, 130)))
    assert OwnFigures.of([first, last]).queue_mean_s == pytest.approx(0.1)
    assert OwnFigures.of([last, first]).queue_mean_s is None


@given(
    text=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: f"tgi_queue_size {text}".encode()))
)
def test_whatever_stands_there_is_read_or_passed_over(text):
    (figures,) = OwnFigures.of_columns(OwnFigures.of([read(text)]).columns()) or (OwnFigures(),)
    assert figures == OwnFigures.of([read(text)])


def _says(text) -> web.Application:
    """A server that says this at /metrics, a text or what makes it."""

    async def metrics(request):
        return web.Response(text=text() if callable(text) else text)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    return app


def test_many_series_are_one_number_and_what_no_journal_keeps_is_none():
    assert read(b"tgi_queue_size 1\n" * 200_000) == {"tgi_queue_size": (200_000, 200_000)}
    assert not any(read(b"tgi_queue_size " + value) for value in (b"-5", b"1e400", b"NaN", b"1e300", b"-"))


def test_the_watch_looks_until_the_end_and_gives_up_where_there_is_nothing(serve):  # noqa: F811 - the fixture
    numbers = itertools.count(3)
    app = _says(lambda: f"tgi_queue_size {next(numbers)}\n")
    with Watch(ServerAddress(url=serve(app).url)) as watch:
        pass
    assert (watch.figures.waiting_mean, watch.why) == (3.5, "")
    with Watch(ServerAddress(url=serve(web.Application()).url)) as watch:
        pass
    assert (watch.figures, watch.why) == (OwnFigures(), "no /metrics: HTTP 404")
    with Watch(ServerAddress(url=serve(_says("python_gc_objects 3")).url)) as watch:
        pass
    assert (watch.figures, "none of the names" in watch.why) == (OwnFigures(), True)


def test_blocks_together_have_the_mean_of_means_the_most_of_all_and_every_preemption():
    figures = [
        OwnFigures(running_mean=mean, running_most=most, num_preemptions=number)
        for mean, most, number in ((2.0, 3.0, 1), (4.0, 9.0, 2), (3.0, 9.0, 3))
    ]
    assert OwnFigures.pooled([OwnFigures(), *figures[:2]]) == figures[2]
    assert OwnFigures.pooled([OwnFigures()]) is None
