"""Attention inside each sequence of a pack: queries, keys and values of one row of tokens in, mixed values out.

Legend: T tokens in the pack, B sequences, H heads, K head width, L length of a sequence, N sequences of one length.

No mask of padding exists. On CUDA a kernel reads the boundaries (KERNELS; `use` chooses); elsewhere runs of equal
lengths are viewed as [N, H, L, K] without a copy and go through PyTorch's fused kernel. Packs are laid out by length
(pack.lay), so a run is as long as it can be. tests/contract/test_attention.py proves all choices equal.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.errors import one_of
from filbert.core.protocols import Batch
from filbert.core.records import Packed, runs

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]  # q, k, v, boundaries, longest; no window
# The same from q, k and v that lie side by side, [T, 3, H, K]; and the bias in them that shall get its gradient there
Joined = Callable[[Tensor, Tensor, int, Tensor | None], Tensor]
HALF = (torch.bfloat16, torch.float16)


def placed(array: object, device: torch.device | str, kind: torch.dtype | None = None) -> Tensor:
    """An array as a tensor on that device; the host does not wait for a copy to a GPU."""
    tensor = torch.as_tensor(array, dtype=kind)
    if torch.device(device).type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def tensors(packed: Packed, device: torch.device | str = "cpu") -> Packed:
    """The same pack as torch tensors on `device`."""
    return packed.mapped(
        lambda name, array: placed(array, device, torch.int32 if name == "boundaries" else torch.int64)
    )


def batch_tensors(batch: Batch, device: torch.device | str) -> Batch:
    """The same batch as tensors on that device; a target whose name ends in `_host` stays on the host."""
    places = {name: "cpu" if name.endswith("_host") else device for name in batch.targets}
    targets = {name: placed(value, places[name]) for name, value in batch.targets.items()}
    return Batch(tensors(batch.packed, device), placed(batch.starts, device), placed(batch.owners, device), targets)


def attend(q_THK: Tensor, k_THK: Tensor, v_THK: Tensor, packed: Packed, *, reach: int = 0) -> Tensor:
    """softmax(q·k / √K)·v within each sequence, [T, H, K]; with `reach`, a token sees at most that far to each side."""
    if q_THK.is_cuda and q_THK.dtype in HALF:
        return _flash(q_THK, k_THK, v_THK, packed, reach)
    return _by_length(q_THK, k_THK, v_THK, packed, reach)


def attend_joined(qkv_T3HK: Tensor, packed: Packed, *, reach: int = 0) -> Tensor:
    """The same from queries, keys and values that lie side by side, as one projection leaves them."""
    if _takes_joined(qkv_T3HK, qkv_T3HK.shape[3], packed, reach):
        return JOINED[CHOSEN["half"]](qkv_T3HK, packed.boundaries, packed.max_len, None)
    q_THK, k_THK, v_THK = qkv_T3HK.unbind(1)
    return attend(q_THK, k_THK, v_THK, packed, reach=reach)


def attend_mapped(x_TD: Tensor, qkv: nn.Linear, heads: int, packed: Packed, *, reach: int = 0) -> Tensor:
    """The same from what `qkv` maps to queries, keys and values; our kernel makes the gradient of its bias as well."""
    shape = (len(x_TD), 3, heads, -1)
    if not x_TD.is_cuda:
        q_THK, k_THK, v_THK = qkv(x_TD).view(shape).unbind(1)
        return _by_length(q_THK, k_THK, v_THK, packed, reach)
    if sums_bias(qkv.bias, x_TD) and _takes_joined(x_TD, qkv.out_features // (3 * heads), packed, reach):
        qkv_T3HK = F.linear(x_TD, qkv.weight, qkv.bias.detach()).view(shape)
        return JOINED[CHOSEN["half"]](qkv_T3HK, packed.boundaries, packed.max_len, qkv.bias)
    return attend_joined(qkv(x_TD).view(shape), packed, reach=reach)


def sums_bias(bias: Tensor | None, x: Tensor) -> bool:
    """Whether our kernels run for x and a layer's bias wants a gradient, which they make while they make its terms."""
    wanted = bias is not None and bias.requires_grad and torch.is_grad_enabled() and bias.dtype == x.dtype
    return wanted and x.is_cuda and x.dtype in HALF and CHOSEN["half"] == "triton"


def attend_first(q_BHK: Tensor, k_THK: Tensor, v_THK: Tensor, packed: Packed, *, reach: int = 0) -> Tensor:
    """The same for each sequence's first token alone, [B, H, K]: all that a pooled answer needs of a last layer."""
    assert 0 not in packed.lengths, "an empty sequence has no first token"
    parts, at = [], 0
    for start, n, length in runs(packed.lengths):
        q_NHK = q_BHK[at : at + n]
        heads, width = q_NHK.shape[1:]
        k_NHLK, v_NHLK = (
            x[start : start + n * length].view(n, length, heads, width).transpose(1, 2) for x in (k_THK, v_THK)
        )
        if reach and length > reach + 1:
            k_NHLK, v_NHLK = k_NHLK[:, :, : reach + 1], v_NHLK[:, :, : reach + 1]
        parts.append(F.scaled_dot_product_attention(q_NHK.unsqueeze(2), k_NHLK, v_NHLK).squeeze(2))
        at += n
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def attend_first_folded(q_BHD: Tensor, x_TD: Tensor, packed: Packed) -> Tensor:
    """What each sequence's first token reads from the layer's input itself, [B, H, D], with no key or value projected.

    q·(W x) = (Wᵀq)·x and Σ a·(W x) = W (Σ a·x): with one question per sequence it is cheaper to fold the key matrix
    into the question (q_BHD, scaled) and apply the value matrix to the answer than to project every token.
    """
    assert 0 not in packed.lengths, "an empty sequence has no first token"
    parts, at = [], 0
    for start, n, length in runs(packed.lengths):
        x_NLD = x_TD[start : start + n * length].view(n, length, -1)
        weights_NHL = torch.bmm(q_BHD[at : at + n], x_NLD.transpose(1, 2)).softmax(-1)
        parts.append(torch.bmm(weights_NHL, x_NLD))
        at += n
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def _flash(q: Tensor, k: Tensor, v: Tensor, packed: Packed, reach: int) -> Tensor:
    edges, longest = packed.boundaries, packed.max_len
    if reach:
        return _varlen(q, k, v, edges, longest, reach)
    kernel = CHOSEN["half"]
    if kernel == "triton" and not _is_short(q.shape[2], longest):
        kernel = "flash"
    return KERNELS[kernel](q, k, v, edges, longest)


def _varlen(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, longest: int, reach: int = 0) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    near = {"window_size": (reach, reach)} if reach else {}
    out = varlen_attn(q, k, v, edges, edges, longest, longest, **near)  # type: ignore[arg-type]
    assert isinstance(out, Tensor)
    return out


def _triton(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, longest: int) -> Tensor:
    from filbert.nn.kernels import short_attention

    return short_attention.attend(q, k, v, edges, longest)


def _triton_joined(qkv: Tensor, edges: Tensor, longest: int, bias: Tensor | None) -> Tensor:
    from filbert.nn.kernels import short_attention

    return short_attention.attend_joined(qkv, edges, longest, bias)


def _takes_joined(x: Tensor, width: int, packed: Packed, reach: int) -> bool:
    half = x.is_cuda and x.dtype in HALF
    return half and not reach and CHOSEN["half"] in JOINED and _is_short(width, packed.max_len)


def _is_short(width: int, longest: int) -> bool:
    """Whether the kernel for short sequences takes them; the flash kernel takes the rest."""
    from filbert.nn.kernels import short_attention

    return width in short_attention.WIDTHS and longest <= short_attention.MOST


KERNELS: dict[str, Kernel] = {"flash": _varlen, "triton": _triton}
JOINED: dict[str, Joined] = {"triton": _triton_joined}
CHOSEN = {"half": "flash"}


def use(kernel: str) -> None:
    """Takes this kernel of KERNELS for half precision on CUDA from now on; windows always take flash.

    flash: PyTorch's. triton: ours for short sequences (nn.kernels.short_attention), whose gradients are the same bits
    each time; GELU's gradient is then ours as well (nn.kernels.fused).
    """
    if kernel not in KERNELS:
        raise one_of("the attention kernel", kernel, KERNELS)
    if kernel == "triton":
        from filbert.nn.kernels import short_attention

        short_attention.check()
    CHOSEN["half"] = kernel


def fastest() -> str:
    """The kernel that was fastest where it can run (experiments/2026-11-16-gpu-pretraining.md), else flash.

    FILBERT_ATTENTION names another.
    """
    wished = os.environ.get("FILBERT_ATTENTION", "")
    if wished:
        return wished
    can = importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability() >= (8, 0)
    return "triton" if can else "flash"


def _by_length(q: Tensor, k: Tensor, v: Tensor, packed: Packed, reach: int) -> Tensor:
    parts = []
    for start, n, length in runs(packed.lengths):
        heads, width = q.shape[1:]
        q_NHLK, k_NHLK, v_NHLK = (  # views, never copies
            x[start : start + n * length].view(n, length, heads, width).transpose(1, 2) for x in (q, k, v)
        )
        if reach and length > reach + 1:
            out_NHLK = _near(q_NHLK, k_NHLK, v_NHLK, reach)
        else:
            out_NHLK = F.scaled_dot_product_attention(q_NHLK, k_NHLK, v_NHLK)
        parts.append(out_NHLK.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def _near(q: Tensor, k: Tensor, v: Tensor, reach: int) -> Tensor:
    """Attention to neighbours at most `reach` away, in blocks, so that time and memory stay linear in L.

    Queries are cut into blocks of 2·reach; a block needs its own keys and `reach` more on either side.
    """
    num_seqs, num_heads, length, width = q.shape
    block = 2 * reach
    tail = -length % block
    num_blocks = (length + tail) // block
    q_blocks = F.pad(q, (0, 0, 0, tail)).view(num_seqs, num_heads, num_blocks, block, width)
    # [N, H, blocks, block + 2·reach, K]: overlapping stretches of keys, each seen by one block of queries.
    k_blocks, v_blocks = (
        F.pad(x, (0, 0, reach, reach + tail)).unfold(2, 2 * block, block).transpose(3, 4) for x in (k, v)
    )
    place_q = torch.arange(num_blocks * block, device=q.device).view(num_blocks, block, 1)
    place_k = torch.arange(2 * block, device=q.device).view(1, 1, -1) + place_q[:, :1] - reach
    seen = ((place_q - place_k).abs() <= reach) & (place_k >= 0) & (place_k < length)
    seen = seen | (place_q >= length)  # queries that only fill the last block: any answer will do, but not NaN
    flat = (num_seqs, num_heads * num_blocks)
    out = F.scaled_dot_product_attention(
        q_blocks.reshape(*flat, block, width),
        k_blocks.reshape(*flat, 2 * block, width),
        v_blocks.reshape(*flat, 2 * block, width),
        attn_mask=seen.repeat(num_heads, 1, 1).unsqueeze(0),
    )
    return out.reshape(num_seqs, num_heads, num_blocks * block, width)[:, :, :length]
