"""Splitting one decoder over two compute units: a GPU-like one with dynamic shapes, an NPU-like one with static graphs.

HeteroInfer (SOSP 2025), sections 3 and 4. `matmul` and `unit` hold the records, `units/` the pairs there are,
`strategies/` one way to split a file, `profile` what was measured, `solver` what follows from it.
"""
