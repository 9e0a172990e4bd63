"""Qualcomm AI Hub, where graphs are profiled one by one and nothing runs end to end: the bucket suite, and a partition
profile of single units."""
