"""MaxText's MaxEngine, and other engines of JetStream's interface, as an engine of the bucket suite.

    interface     what is used of MaxText and JetStream, and where that was read
    lengths       the lengths that a configuration declares
    opening       a MaxEngine from a configuration
    engine        engines.protocol.Engine on it

It ran on MaxText 0.2.5 on a CPU and on a stand-in, on no TPU: docs/adapters.md.
"""
