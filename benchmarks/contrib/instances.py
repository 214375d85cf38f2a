"""Random instances of onnxruntime's own operators, by name."""

from benchmarks.contrib import attention, floats, integers, others, recurrent

INSTANCES = {
    **floats.INSTANCES,
    **integers.INSTANCES,
    **attention.INSTANCES,
    **others.INSTANCES,
    **recurrent.INSTANCES,
}
