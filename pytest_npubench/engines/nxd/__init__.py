"""NxD Inference (neuronx-distributed-inference) on AWS Trainium and Inferentia, as an engine of the bucket suite.

    interface     what is used of NxD Inference, and where that was read
    buckets       the sets that a NeuronConfig declares, and which bucket a length runs in
    opening       a compiled and loaded model
    engine        engines.protocol.Engine on it

It was written against the public interface and tested on a stand-in: see docs/adapters.md for what has run. vLLM on
Neuron is engines/vllm's: engines/vllm/buckets.py reads the same sets out of `override_neuron_config`.
"""
