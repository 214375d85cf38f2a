"""Small modules of PyTorch in the form of what people run: what benchmarks/export_architectures.py
exports.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # as everybody calls it

_WIDTH, _HEADS, _LENGTH = 16, 4, 6


@dataclass(frozen=True, slots=True)
class Module:
    """A module with inputs for it, and the axes of inputs whose sizes stay open, by name."""

    name: str
    made: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]
    open_axes: Sequence[Mapping[int, str]] = ()


class Residual(nn.Module):
    """ResNet's bottleneck with a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(8, 4, 1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, 2, 1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 16, 1, bias=False),
            nn.BatchNorm2d(16),
        )
        self.aside = nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.body(x) + self.aside(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(y, 1), 1))


class Inverted(nn.Module):
    """MobileNetV3's inverted residual with squeeze and excitation; EfficientNet's with SiLU."""

    def __init__(self, act: Callable[[Tensor], Tensor], gate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.act, self.gate = act, gate
        self.wide, self.deep, self.narrow = (
            nn.Conv2d(8, 16, 1),
            nn.Conv2d(16, 16, 5, 1, 2, groups=16),
            nn.Conv2d(16, 8, 1),
        )
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.deep(self.act(self.wide(x))))
        s = self.gate(self.excite(self.act(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.narrow(y * s)


class Attention(nn.Module):
    """Attention of heads, as PyTorch's one call; of fewer keys than queries where `groups` is less than the
    heads.
    """

    def __init__(
        self, context: int = _WIDTH, groups: int = _HEADS, causal: bool = False, rotary: bool = False
    ) -> None:
        super().__init__()
        self.size = _WIDTH // _HEADS
        self.groups, self.causal, self.rotary = groups, causal, rotary
        self.q, self.o = nn.Linear(_WIDTH, _WIDTH, bias=False), nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.k, self.v = (nn.Linear(context, groups * self.size, bias=False) for _ in range(2))

    def turned(self, x: Tensor) -> Tensor:
        """Rotary positions, by halves."""
        places = torch.arange(x.shape[2], dtype=torch.float32)
        steps = 1.0 / 100.0 ** (torch.arange(0, self.size, 2, dtype=torch.float32) / self.size)
        angles = torch.outer(places, steps)
        angles = torch.cat((angles, angles), -1)
        low, high = x.chunk(2, -1)
        return x * angles.cos() + torch.cat((-high, low), -1) * angles.sin()

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (_HEADS, self.size)).transpose(1, 2)
        k, v = (
            part(context).unflatten(-1, (self.groups, self.size)).transpose(1, 2) for part in (self.k, self.v)
        )
        if self.rotary:
            q, k = self.turned(q), self.turned(k)
        if self.groups != _HEADS:
            k, v = (part.repeat_interleave(_HEADS // self.groups, 1) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.o(y.transpose(1, 2).flatten(2))


class Gpt(nn.Module):
    """A block of GPT-2, normalised first, with its tokens and places."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, _WIDTH), nn.Embedding(_LENGTH, _WIDTH)
        self.first, self.second = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.attend = Attention(causal=True)
        self.up, self.down = nn.Linear(_WIDTH, 32), nn.Linear(32, _WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        n = self.first(x)
        x = x + self.attend(n, n)
        x = x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))
        return x @ self.words.weight.T


class RmsNorm(nn.Module):
    """Root mean square normalisation as Llama's code has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(_WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Llama(nn.Module):
    """A block of Llama: rotary positions, grouped queries, RMS normalisation, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = RmsNorm(), RmsNorm()
        self.attend = Attention(groups=2, causal=True, rotary=True)
        self.gate, self.up, self.down = (
            nn.Linear(_WIDTH, 24, False),
            nn.Linear(_WIDTH, 24, False),
            nn.Linear(24, _WIDTH, False),
        )

    def forward(self, x: Tensor) -> Tensor:
        n = self.first(x)
        x = x + self.attend(n, n)
        n = self.second(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Vit(nn.Module):
    """A vision transformer: patches, a class token, PyTorch's own encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, _WIDTH, 4, 4)
        self.token, self.places = (
            nn.Parameter(torch.zeros(1, 1, _WIDTH)),
            nn.Parameter(torch.randn(1, 5, _WIDTH)),
        )
        self.layer = nn.TransformerEncoderLayer(
            _WIDTH, _HEADS, 32, activation="gelu", batch_first=True, norm_first=True
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat((self.token.expand(x.shape[0], -1, -1), y), 1) + self.places
        return self.layer(y)[:, 0]


class Whisper(nn.Module):
    """The encoder of Whisper: two convolutions in time, sines as places, a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(8, _WIDTH, 3, padding=1), nn.Conv1d(_WIDTH, _WIDTH, 3, 2, 1)
        self.register_buffer("places", torch.randn(6, _WIDTH))
        self.norm, self.attend = nn.LayerNorm(_WIDTH), Attention()

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.second(F.gelu(self.first(x)))).permute(0, 2, 1)
        y = y + self.places
        n = self.norm(y)
        return y + self.attend(n, n)


class Diffusion(nn.Module):
    """A step of a diffusion U-Net: group normalisation, time, attention to a prompt, a skip, up again."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.GroupNorm(4, _WIDTH), nn.GroupNorm(4, 2 * _WIDTH)
        self.conv, self.time = nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1), nn.Linear(8, _WIDTH)
        self.down, self.last = nn.Conv2d(_WIDTH, _WIDTH, 3, 2, 1), nn.Conv2d(2 * _WIDTH, 4, 3, padding=1)
        self.cross = Attention(context=12)

    def forward(self, x: Tensor, steps: Tensor, prompt: Tensor) -> Tensor:
        angles = steps[:, None] * torch.exp(torch.arange(4) * (-math.log(100.0) / 4))
        time = self.time(F.silu(torch.cat((angles.sin(), angles.cos()), -1)))
        h = x + self.conv(F.silu(self.norm(x))) + time[:, :, None, None]
        low = self.down(h)
        flat = low.flatten(2).transpose(1, 2)
        low = low + self.cross(flat, prompt).transpose(1, 2).reshape(low.shape)
        up = F.interpolate(low, scale_factor=2.0, mode="nearest")
        return self.last(F.silu(self.out(torch.cat((up, h), 1))))


class Recurrent(nn.Module):
    """Two directions of an LSTM, a GRU behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 4, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (last, _) = self.lstm(x)
        z, _ = self.gru(y)
        return torch.tanh(z), last


class Yolo(nn.Module):
    """A head of YOLO: boxes by a distribution over distances, classes, the best few of them."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes, self.classes = nn.Conv2d(8, 16, 1), nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        spread = self.boxes(x).flatten(2).view(1, 4, 4, -1).transpose(1, 2).softmax(1)
        distances = (spread * torch.arange(4.0).view(1, 4, 1, 1)).sum(1)
        near, far = distances.chunk(2, 1)
        row, column = torch.meshgrid(torch.arange(4) + 0.5, torch.arange(4) + 0.5, indexing="ij")
        anchors = torch.stack((column.flatten(), row.flatten())).unsqueeze(0)
        boxes = torch.cat(((2 * anchors + far - near) / 2, far + near), 1) * 8.0
        scores = self.classes(x).sigmoid().flatten(2)
        best, at = scores.amax(1).topk(5, -1)
        return boxes.transpose(1, 2).gather(1, at.unsqueeze(-1).expand(-1, -1, 4)), best


class Quantised(nn.Module):
    """A quantised convolution and linear layer, by fake quantisation: QuantizeLinear and DequantizeLinear in
    pairs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        def q(y: Tensor, scale: float, zero: int = 0) -> Tensor:
            return torch.fake_quantize_per_tensor_affine(
                y, scale, zero, 0 if zero else -128, 255 if zero else 127
            )

        y = q(
            F.relu(F.conv2d(q(x, 0.02, 128), q(self.conv.weight, 0.01), self.conv.bias, padding=1)), 0.05, 3
        )
        y = q(F.avg_pool2d(F.max_pool2d(y, 2), 2).flatten(1), 0.05, 3)
        return q(F.linear(y, q(self.head.weight, 0.01), self.head.bias), 0.1, 128)


class Experts(nn.Module):
    """A mixture of experts: the best two by a router, computed densely."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(_WIDTH, 4, False)
        self.up, self.down = (
            nn.Parameter(torch.randn(4, _WIDTH, 12)),
            nn.Parameter(torch.randn(4, 12, _WIDTH)),
        )

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        share = torch.zeros(x.shape[0], 4).scatter(1, chosen, weights)
        hidden = F.silu(torch.einsum("td,edh->teh", x, self.up))
        return torch.einsum("teh,ehd,te->td", hidden, self.down, share)


class Mamba(nn.Module):
    """A selective scan as Mamba's, its steps laid out, behind a causal convolution of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 6, 3, groups=6, padding=2)
        self.project, self.step = nn.Linear(6, 8, False), nn.Linear(6, 6)
        self.logs = nn.Parameter(torch.randn(6, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        into, out = self.project(y).chunk(2, -1)
        step = F.softplus(self.step(y))
        decay = torch.exp(step[..., None] * -torch.exp(self.logs))
        state, found = torch.zeros(x.shape[0], 6, 4), []
        for place in range(x.shape[1]):
            state = decay[:, place] * state + (step * y)[:, place, :, None] * into[:, place, None]
            found.append((state * out[:, place, None]).sum(-1))
        return torch.stack(found, 1) * F.silu(x)


def _r(*shape: int) -> Tensor:
    return torch.randn(*shape)


def _ids(*shape: int) -> Tensor:
    return torch.randint(0, 20, shape)


_BATCH = {0: "batch"}
_TEXT = {0: "batch", 1: "length"}
MODULES = (
    Module("resnet", lambda: (Residual(), (_r(1, 8, 8, 8),))),
    Module("mobilenet", lambda: (Inverted(F.hardswish, F.hardsigmoid), (_r(1, 8, 6, 6),))),
    Module("efficientnet", lambda: (Inverted(F.silu, torch.sigmoid), (_r(1, 8, 6, 6),)), (_BATCH,)),
    Module("gpt", lambda: (Gpt(), (_ids(1, _LENGTH),))),
    Module("llama", lambda: (Llama(), (_r(2, _LENGTH, _WIDTH),))),
    Module("llama-open", lambda: (Llama(), (_r(2, _LENGTH, _WIDTH),)), (_TEXT,)),
    Module(
        "bert",
        lambda: (nn.TransformerEncoderLayer(_WIDTH, _HEADS, 32, batch_first=True), (_r(2, _LENGTH, _WIDTH),)),
    ),
    Module("vit", lambda: (Vit(), (_r(2, 3, 8, 8),)), (_BATCH,)),
    Module("whisper", lambda: (Whisper(), (_r(1, 8, 12),))),
    Module("diffusion", lambda: (Diffusion(), (_r(1, _WIDTH, 4, 4), _r(1), _r(1, 3, 12)))),
    Module("recurrent", lambda: (Recurrent(), (_r(2, 4, 6),))),
    Module("yolo", lambda: (Yolo(), (_r(1, 8, 4, 4),))),
    Module("quantised", lambda: (Quantised(), (_r(1, 3, 8, 8),))),
    Module("experts", lambda: (Experts(), (_r(5, _WIDTH),))),
    Module("mamba", lambda: (Mamba(), (_r(1, 3, 6),))),
)
