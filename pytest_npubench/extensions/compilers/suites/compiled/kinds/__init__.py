"""The kinds of the suite `compiled`: what a vendor's compiler makes of a bucket, of a step, and of a workload.

A case fails where a binary does not compile or fit, is another module for another request, where a cache that was
donated is copied, or where a whole layer's keys or values are. Cycles and bytes repeat exactly, so any change of them
is one (verdict/exact.py).
"""
