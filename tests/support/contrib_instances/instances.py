"""Random instances of onnxruntime's own operators, by name."""

from contrib_instances import attention, floats, integers, others, recurrent

INSTANCES = {
    **floats.INSTANCES,
    **integers.INSTANCES,
    **attention.INSTANCES,
    **others.INSTANCES,
    **recurrent.INSTANCES,
}
