"""Confirm that the exported torch.remainder is NaN for an infinite divisor, where torch gives the
dividend.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch


class Remainder(torch.nn.Module):
    """What model.onnx computes: Mod, which is torch.remainder."""

    def forward(self, dividend, divisor):
        """Return the remainder."""
        return torch.remainder(dividend, divisor)


given = (torch.tensor([3.0, 7.0]), torch.tensor([float("inf"), 4.0]))
assert Remainder()(*given).tolist() == [3, 3]
path = str(Path(tempfile.mkdtemp()) / "exported.onnx")
torch.onnx.export(Remainder(), given, path, input_names=["a", "b"], dynamo=True)
got = onnxruntime.InferenceSession(path).run(None, {"a": given[0].numpy(), "b": given[1].numpy()})[0]
is_confirmed = bool(np.isnan(got[0]))
print("confirmed:" if is_confirmed else "not confirmed:", torch.__version__, got.tolist())
sys.exit(not is_confirmed)
