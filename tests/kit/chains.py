"""A CRF's scores and weights in, its best legal tags by the definition out: one text after another, tag by tag."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from filbert.nn.crf_walk import MOST, Allowed

Weights = tuple[np.ndarray, np.ndarray, np.ndarray]  # begin [L], transitions [L, L], end [L]


def weights_of(crf: Any) -> Weights:
    """Those of a CRF as arrays."""
    begin, pair, end = (weight.detach().numpy() for weight in (crf.begin, crf.transitions, crf.end))
    return begin, pair, end


def best_tags(scores: np.ndarray, edges: Sequence[int] | np.ndarray, weights: Weights, legal: Allowed) -> list[int]:
    """The best legal tags of each text; of equals the lowest, at the last unit first and then backwards."""
    masks = (legal.begin, legal.pair, legal.end)
    begin, pair, end = (
        np.where(may, np.clip(weight, -MOST, MOST), -np.inf).astype(scores.dtype)
        for weight, may in zip(weights, masks, strict=True)
    )
    scores, found = np.clip(scores, -MOST, MOST), list[int]()
    for first, last in itertools.pairwise(edges):
        if first == last:
            continue
        reached, came_from = begin + scores[first], list[list[int]]()
        for unit in range(first + 1, last):
            ways = [[reached[before] + pair[before, tag] for before in range(len(begin))] for tag in range(len(begin))]
            came_from.append([way.index(max(way)) for way in ways])
            reached = np.array([max(way) for way in ways], dtype=scores.dtype) + scores[unit]
        finals = list(reached + end)
        path = [finals.index(max(finals))]
        for pointers in reversed(came_from):
            path.append(pointers[path[-1]])
        found += path[::-1]
    return found
