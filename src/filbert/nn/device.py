"""The name of a device in; the device, or one sentence where it cannot be used here, out."""

from __future__ import annotations

import torch

from filbert.core.errors import InputError, one_of

DEVICES = ("auto", "cpu", "cuda")


def usable(wished: str, field: str = "device") -> torch.device:
    """What `wished` names; "auto" is a GPU where there is one. field: what an error calls it."""
    if not isinstance(wished, str):
        raise one_of(field, wished, DEVICES)
    if wished == "auto":
        wished = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wished)
    except RuntimeError:
        if wished.lower() in ("gpu", "nvidia"):  # which resembles "cpu" more than what is meant
            raise InputError(
                f"{field} is {wished!r}, but a GPU is called cuda; the first of several is cuda:0."
            ) from None
        raise one_of(field, wished, DEVICES) from None
    if device.type == "mps" and torch.backends.mps.is_available():
        return device
    if device.type not in DEVICES:
        raise one_of(field, wished, DEVICES)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(f"{field} is {wished}, but no NVIDIA GPU can be used here; take cpu.")
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise InputError(f"{field} is {wished}, but GPUs here are numbered from 0 to {count - 1}.")
    return device
