"""A stand-in for Qualcomm AI Hub: speaks the protobuf REST of its API to the unmodified client, on 127.0.0.1.

Its devices and timings are made up. A profile's times follow from the job's name: a prefill graph takes 10 us a token
of its bucket, a decode graph 500 us and 1 us a token, a matrix multiplication 100 us and 1 us for 64 outputs; the GPU
takes twice as long, the CPU five times.

`Script` says what goes wrong. Every request is counted, so that a test can tell how many jobs were really asked for.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import qai_hub.public_api_pb2 as pb

TOKEN = "a-secret-that-nobody-may-print"
QAIRT = "2.37.0.250724"
S24 = ("Samsung Galaxy S24", "14", ("chipset:qualcomm-snapdragon-8gen3", "hexagon:v75", "soc-model:57"))
DEVICES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Google Pixel 8", "14", ("chipset:google-tensor-g3",)),
    ("QCS8550 (Proxy)", "12", ("chipset:qualcomm-qcs8550-proxy", "hexagon:v73")),
    ("Samsung Galaxy S24 (Family)", "14", S24[2]),
    ("Samsung Galaxy S24", "13", S24[2]),
    S24,
    ("Samsung Galaxy S24 Ultra", "14", S24[2]),
    ("Snapdragon 8 Elite QRD", "15", ("chipset:qualcomm-snapdragon-8-elite", "hexagon:v79", "soc-model:69")),
)
EVERY_DEVICE = ("framework:qnn", "framework:onnx", "framework:tflite", "os:android", "htp-supports-fp16:true")
UNIT_FACTORS = {"npu": 1, "gpu": 2, "cpu": 5}
UNIT_CODES = {"npu": pb.COMPUTE_UNIT_NPU, "gpu": pb.COMPUTE_UNIT_GPU, "cpu": pb.COMPUTE_UNIT_CPU}


@dataclass(slots=True, kw_only=True)
class Script:
    """What goes wrong. Names are parts of job names; counters go down with each request they spoil.

    `polls` is how often a job's state is asked for before it is done. refuse_posts answers 429 to submissions,
    drop_before and drop_after close the connection, the latter once the request took effect.
    fallback names the unit that a job really ran on, whatever it was asked to.
    """

    devices: tuple[tuple[str, str, tuple[str, ...]], ...] = DEVICES
    frameworks: bool = True
    expired: bool = False
    status: int | None = None
    polls: int = 1
    refuse_posts: int = 0
    refuse_gets: int = 0
    drop_before: int = 0
    drop_after: int = 0
    failing: dict[str, str] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    without_result: set[str] = field(default_factory=set)
    tool_version: str = QAIRT
    fallback: dict[str, str] = field(default_factory=dict)
    never: bool = False


@dataclass(slots=True, kw_only=True)
class Job:
    id: str
    kind: str
    body: Any
    polls: int = 0

    @property
    def name(self) -> str:
        return str(self.body.name)


class StandIn(ThreadingHTTPServer):
    """The service. `jobs` and `models` are what it was asked for, in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = Script()
        self.jobs: dict[str, Job] = {}
        self.models: dict[str, str] = {}
        self.uploaded: dict[str, int] = {}
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def configure(self, folder: Path) -> Path:
        """A client configuration as `qai-hub configure` writes it."""
        path = folder / "client.ini"
        path.write_text(
            f"[api]\napi_token = {TOKEN}\napi_url = {self.url}\nweb_url = {self.url}\nverbose = True\n",
            encoding="utf-8",
        )
        return path

    def names(self, kind: str) -> list[str]:
        """Names of the jobs of a kind, without what makes each unique."""
        return [re.sub("-[0-9a-f]{8}$", "", job.name) for job in self.jobs.values() if job.kind == kind]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was dropped on purpose is no reason to print."""


class Handler(BaseHTTPRequestHandler):
    server: StandIn
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def do_PUT(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        left = size
        while left:
            left -= len(self.rfile.read(min(left, 1 << 20)))
        with self.server.lock:
            self.server.uploaded[self.path.split("/")[2]] = size
        self._answer(200, b"", {"ETag": '"etag"'})

    def _serve(self, body: bytes) -> None:
        url = urlsplit(self.path)
        path = tuple(part for part in url.path.split("/") if part)[2:]
        with self.server.lock:
            answer = self._spoilt(path) or self._route(path, parse_qs(url.query), body)
        if answer is None:
            self.close_connection = True
            self.connection.close()
            return
        status, content = answer
        self._answer(status, content.encode() if isinstance(content, str) else content.SerializeToString())

    def _spoilt(self, path: tuple[str, ...]) -> tuple[int, Any] | None:
        """What the script has this request answered with instead."""
        script = self.server.script
        self.server.requests[f"{self.command} {path[0]}"] += 1
        if script.never:
            raise ConnectionAbortedError
        if script.expired or self.headers["Authorization"] != f"token {TOKEN}":
            return 401, '{"detail": "Invalid token."}'
        if script.status:
            return script.status, "out of order"
        if self.command == "POST" and path == ("jobs",) and script.refuse_posts:
            script.refuse_posts -= 1
            return 429, '{"detail": "Request was throttled."}'
        if self.command == "GET" and script.refuse_gets:
            script.refuse_gets -= 1
            return 429, '{"detail": "Request was throttled."}'
        if script.drop_before:
            script.drop_before -= 1
            raise ConnectionAbortedError
        return None

    def _route(self, path: tuple[str, ...], query: dict[str, list[str]], body: bytes) -> tuple[int, Any] | None:
        server = self.server
        match (self.command, *path):
            case ("GET", "devices"):
                return 200, self._devices(query)
            case ("GET", "frameworks"):
                return 200, self._frameworks()
            case ("POST", "models"):
                identifier = f"m{len(server.models)}"
                server.models[identifier] = pb.Model.FromString(body).name
                return 201, pb.CreateUpdateResponse(id=identifier)
            case ("GET", "models", identifier, "multipart_upload"):
                urls = pb.FileMultipartUploadURL(
                    urls=[f"{server.url}/upload/{identifier}/0"], upload_id="u", max_part_size=1 << 40
                )
                return 200, pb.FileUploadResponse(multipart_url=urls)
            case ("POST", "models", identifier, "multipart_upload"):
                return 200, pb.CreateUpdateResponse(id=identifier)
            case ("GET", "models", identifier):
                if identifier not in server.models:
                    return 404, "no such model"
                return 200, self._model(identifier)
            case ("POST", "jobs"):
                return self._create(body)
            case ("GET", "job_summaries"):
                return 200, self._summaries(query)
            case ("GET", "jobs", identifier):
                job = server.jobs.get(identifier)
                return (200, self._job(job)) if job else (404, "no such job")
            case ("GET", "jobs", identifier, "result"):
                return 200, self._result(server.jobs[identifier])
        return 404, f"the stand-in knows no {self.command} {'/'.join(path)}"

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf" if status < 300 else "text/plain")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    # -- what the service knows

    def _devices(self, query: dict[str, list[str]]) -> Any:
        wanted = query.get("name", [""])[0], query.get("os", [""])[0]
        found = [
            pb.Device(name=name, os=os, attributes=[*attributes, *EVERY_DEVICE])
            for name, os, attributes in self.server.script.devices
            if wanted[0] in ("", name) and wanted[1] in ("", os)
        ]
        return pb.DeviceList(devices=found[:1] if query.get("select") == ["True"] else found)

    def _frameworks(self) -> Any:
        known = [
            pb.Framework(name="QAIRT", api_version="2.36", api_tags=[], full_version="2.36.1"),
            pb.Framework(name="QAIRT", api_version="2.37", api_tags=["default", "latest"], full_version=QAIRT),
        ]
        return pb.FrameworkList(frameworks=known if self.server.script.frameworks else known[:1])

    def _model(self, identifier: str) -> Any:
        return pb.Model(model_id=identifier, name=self.server.models.get(identifier, ""), model_type=pb.MODEL_TYPE_ONNX)

    def _create(self, body: bytes) -> tuple[int, Any] | None:
        message = pb.Job.FromString(body)
        kind = message.WhichOneof("job")
        identifier = f"j{len(self.server.jobs)}"
        self.server.jobs[identifier] = Job(id=identifier, kind=kind, body=getattr(message, kind))
        if self.server.script.drop_after:
            self.server.script.drop_after -= 1
            return None
        return 201, pb.CreateUpdateResponse(id=identifier)

    def _state(self, job: Job) -> tuple[int, str]:
        script = self.server.script
        job.polls += 1
        for part, reason in script.failing.items():
            if part in job.name:
                return pb.JOB_STATE_FAILED, reason
        if job.polls <= script.polls or any(part in job.name for part in script.hanging):
            running = pb.JOB_STATE_OPTIMIZING_MODEL, pb.JOB_STATE_MEASURING_PERFORMANCE
            return running[job.kind == "inference_job"], ""
        return pb.JOB_STATE_DONE, ""

    def _job(self, job: Job) -> Any:
        state, reason = self._state(job)
        message = pb.Job()
        part = getattr(message, job.kind)
        part.CopyFrom(job.body)
        part.job_state, part.failure_reason = state, reason
        if job.kind == "compile_job":
            part.compile_job_id = job.id
            target = pb.Model(model_id=f"{job.id}-target", name=job.name, model_type=pb.MODEL_TYPE_QNN_DLC)
            part.target_model.CopyFrom(target)
        else:
            part.inference_job_id = job.id
        return message

    def _summaries(self, query: dict[str, list[str]]) -> Any:
        kind = {"compile": "compile_job", "inference": "inference_job"}[query["type"][0]]
        offset, limit = int(query.get("offset", ["0"])[0]), int(query["limit"][0])
        latest = [job for job in reversed(self.server.jobs.values()) if job.kind == kind][offset : offset + limit]
        return pb.JobSummaryList(
            job_summaries=[
                pb.JobSummary(compile_job_summary=pb.CompileJobSummary(job_id=job.id, name=job.name))
                if kind == "compile_job"
                else pb.JobSummary(inference_job_summary=pb.InferenceJobSummary(job_id=job.id, name=job.name))
                for job in latest
            ]
        )

    def _result(self, job: Job) -> Any:
        if any(part in job.name for part in self.server.script.without_result):
            return pb.JobResult(inference_job_result=pb.InferenceJobResult(inference_job_id=job.id))
        times = made_up_times_us(job.name)
        unit = next((unit for part, unit in self.server.script.fallback.items() if part in job.name), unit_of(job.name))
        layers = [
            pb.LayerDetail(
                name=f"layer{index}", layer_type_name="MatMul", compute_unit=UNIT_CODES[unit], execution_time=7
            )
            for index in range(9)
        ]
        layers.append(
            pb.LayerDetail(name="gather", layer_type_name="Gather", compute_unit=pb.COMPUTE_UNIT_CPU, execution_time=11)
        )
        detail = pb.ProfileDetail(
            major_version=1,
            minor_version=2,
            execution_time=min(times),
            all_execution_times=times,
            cold_load_time=900_000,
            warm_load_time=200_000,
            compile_time=0,
            after_execution_peak_memory=123_456_789,
            layer_details=layers,
            tool_versions=[pb.ToolVersion(name="QAIRT", version=self.server.script.tool_version)],
        )
        return pb.JobResult(inference_job_result=pb.InferenceJobResult(inference_job_id=job.id, detail=detail))


def unit_of(name: str) -> str:
    return next(unit for unit in UNIT_FACTORS if f"-{unit}-" in name)


def made_up_times_us(name: str) -> list[int]:
    """Twenty times a few permille apart."""
    bucket = int(re.findall(r"-(\d+)-(?:npu|gpu|cpu)-", name)[0])
    mean = 10 * bucket if "prefill" in name else 500 + bucket
    return [mean * UNIT_FACTORS[unit_of(name)] + index % 5 for index in range(20)]


@contextmanager
def serving() -> Iterator[StandIn]:
    """A stand-in that serves in a thread of its own."""
    server = StandIn()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
