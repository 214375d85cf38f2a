"""The devices on which torch computes."""

from __future__ import annotations

DEVICES = ("cpu", "cuda")


class NoDevice(Exception):
    """A device that this torch, or this machine, does not have."""


def choose_device(name: str) -> None:
    """Make torch create and compute tensors on a device from now on. Raises NoDevice if there is none."""
    import torch

    if name == "cpu":
        torch.set_default_device(None)
        return
    if not torch.cuda.is_available():
        lack = "there is none, or it needs --no-sandbox" if torch.version.cuda else "this build has no CUDA"
        raise NoDevice("torch cannot compute on %s: %s" % (name, lack))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_default_device(name)
