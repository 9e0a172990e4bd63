"""Static decoder graphs for Qualcomm AI Hub: exported as ONNX, compiled and profiled there as jobs.

    graph        GraphSpec: which graph of which decoder; its name and digest
    weights      seeded random weights, one tensor at a time
    onnx_file    an ONNX file under construction, its weights inside or beside it
    layers       the decoder's parts as ONNX nodes
    decoder      prefill and decode graph of one bucket
    profile      what a profile job's report says: times, memory, and the unit of each layer
    ledger       job ids on disk, so that a killed run picks its jobs up again
    jobs         how jobs are run: submit, wait, resume
    service      devices, uploads and jobs through the vendor's client; client_errors: what that raises, in our words
    probe        asks the service for its devices, in a process of its own
    backend      the device family `qualcomm`: which phones are taken

The vendor's client is imported by the service alone, and onnx by the files that write graphs.
"""

from __future__ import annotations

from pytest_npubench.engines.descriptor import EngineDescriptor


class AiHub(EngineDescriptor):
    name = "aihub"
    title = "AI Hub"
    about = "static graphs as jobs of Qualcomm AI Hub"
    families = ("qualcomm",)
    parts = {"graphs": "pytest_npubench.extensions.compilers.suites.graphs:Graphs"}  # noqa: RUF012 - of the class


ENGINE = AiHub()
