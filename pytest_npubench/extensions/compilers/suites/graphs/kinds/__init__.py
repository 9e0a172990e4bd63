"""The kinds of the suite `graphs`: of graphs that AI Hub profiled on a phone, and of graphs compiled and emulated here.

profile, steps, prediction   on a phone's units, from jobs of the service
layers, making, batches      by Qualcomm's compiler; no phone runs, and the compiler tells no cycles of the NPU: no
                             figure of these is a time of a phone

A case of the compiler fails where the NPU does not take an operator, where a graph becomes more than one context
binary, where the emulated NPU's answers are off, where its INT8 is off integer arithmetic or the shadow path does not
help, or where all of it is more than the device's memory.
"""
