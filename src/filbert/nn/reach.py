"""ModernBERT's scheme: every third layer sees everything, the others 64 tokens to each side. No torch."""

from __future__ import annotations

GLOBAL_EVERY, REACH, GLOBAL_THETA, LOCAL_THETA = 3, 64, 160_000.0, 10_000.0
