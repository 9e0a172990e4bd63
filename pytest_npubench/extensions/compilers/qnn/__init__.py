"""Qualcomm's HTP compiler and its emulator, on a machine without a Hexagon NPU.

    facts      which graph, and what the compiler makes of it
    graphs     one layer, the head, or a whole decoder, as ONNX
    sessions   the compiler through ONNX Runtime: context binaries, and runs on the emulated NPU
    answers    a small decoder on the emulated NPU against the reference decoder
    compiler   compiles one graph after the other, in a process of its own

The engine is `compiled` (compilers/compiled): this is its compiler for Snapdragon devices. onnx, onnxruntime and
onnxruntime_qnn are imported in the compiler's process alone.
"""
