"""The source of scripts that run a PyTorch program without opsieve; the main process writes it."""

from __future__ import annotations

from typing import Any, Mapping

RUN = """\
def run(model, inputs):
    import torch%(config)s

    scope = {}
    exec(model, scope)

    def fed(name, value):
        if value.dtype.kind == "V":
            bits = value.view(np.int16 if value.itemsize == 2 else np.uint8)
            made = torch.from_numpy(bits.copy()).view(getattr(torch, value.dtype.name))
        else:
            made = torch.from_numpy(value.copy())
        strides = scope.get("STRIDES", {}).get(name)
        if strides is None:
            return made
        return torch.empty_strided(made.shape, strides, dtype=made.dtype).copy_(made)

    def read(tensor):
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if plain.dtype is torch.bfloat16:
            import ml_dtypes

            return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return plain.numpy().copy()

    def layout(tensor):
        if not tensor.numel():
            return np.array([0] * tensor.dim() + [-1])
        start = tensor.untyped_storage().data_ptr()
        steps = [step if size > 1 else 0 for step, size in zip(tensor.stride(), tensor.shape)]
        return np.array(steps + [storages.index(start) if start in storages else -1])

    given = [fed(name, value) for name, value in inputs.items()]
    torch.manual_seed(0)
    with torch.no_grad()%(patches)s:
        made = %(call)s(*given)
    outputs = {f"{name}.after": read(item) for name, item in zip(inputs, given)}
    storages = [item.untyped_storage().data_ptr() for item in given]
    for place, item in enumerate(made):
        tensor = torch.as_tensor(item)
        outputs[f"output_{place}"] = read(tensor)
        outputs[f"output_{place}.layout"] = layout(tensor)
        storages.append(tensor.untyped_storage().data_ptr())
    return outputs
"""
COMPILED = 'torch.compile(scope["program"], backend=%a, fullgraph=True, dynamic=%a)'


def write_run(options: Mapping[str, str], patches: Mapping[str, Any]) -> str:
    """Return the source of `run`: the program as text, compiled with the options of the backend `inductor`,
    or run by eager torch.
    """
    level = options.get("level", "off")
    call = 'scope["program"]'
    if level != "off":
        call = COMPILED % (level, options["shapes"] == "dynamic")
    patched = ", torch._inductor.config.patch(%a)" % dict(patches) if patches and level != "off" else ""
    return RUN % {
        "call": call,
        "patches": patched,
        "config": "\n    import torch._inductor.config" if patched else "",
    }
