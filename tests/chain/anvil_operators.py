"""The operator of a user's own that anvil has; appended to the copy of the fake backend."""

from onnx.reference.op_run import OpRun


class ScaledSum(OpRun):
    """alpha * a + b, as docs/how-to/add-an-operator.md declares it."""

    op_domain = "acme.nn"

    def _run(self, a, b, alpha=1.0):
        return ((alpha * a + b).astype(a.dtype),)


USERS = [ScaledSum]
