"""512 tokens and two models in; what it costs to see their attention, beside not to, and beside eager peers, out.

    python benchmarks/attention.py [--tokens 512] [--rounds 5] [--bertviz SITE-PACKAGES] [--json FILE]

Everybody reads the same tokens with the same weights, in float32 on the given number of threads. `plain` is filbert's
forward, in fused kernels. `one layer` is the same forward and the maps of the middle layer, `one layer alone` is what
`model.attention(text, layers=[k])` does, which ends there; `all layers` has all maps. `eager` is transformers with
attn_implementation="eager", `eager maps` the same with output_attentions, which is what BertViz begins with; its page
is made by `head_view(html_action="return")`. Before any timing the maps are compared with transformers', within 1e-5.
Memory is that of a fresh process: the highest resident size during the call less that before it, after a first
`plain` call. Rounds are interleaved, each contender beside `plain` of its own round. Targets: one layer under 1.3 times
a plain forward, and memory for its maps only.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch

import timing
from filbert.builtin import model as builtin
from filbert.core.records import Encoding
from filbert.folder.folder import load
from filbert.models import bert
from filbert.nn import maps
from filbert.nn.attention import tensors
from filbert.pack.lay import pack

TARGET = 1.3
NAMES = ("plain", "one layer", "one layer alone", "all layers", "eager", "eager maps")
MODELS = ("builtin", "base")


class Setup:
    """A model of ours and transformers' with the same weights, and the tokens that both read."""

    def __init__(self, name: str, tokens: int, threads: int) -> None:
        import transformers

        logging.getLogger("transformers").setLevel(logging.ERROR)
        torch.set_num_threads(threads)
        if name == "builtin":
            self.ours = load("builtin").model
            how = {"attn_implementation": "eager", "dtype": torch.float32}
            self.theirs = transformers.AutoModel.from_pretrained(builtin.folder(), **how).eval()
        else:
            torch.manual_seed(0)
            config = transformers.BertConfig(vocab_size=21_128, attn_implementation="eager")
            self.theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
            self.ours = bert.Bert(bert.Config()).eval()
            state = self.theirs.state_dict()
            names = bert.classic_names(self.ours.config, ())
            self.ours.load_state_dict({own: torch.cat([state[n] for n in several]) for own, several in names})
        ids = np.random.default_rng(0).integers(5, 5_000, tokens).astype(np.int32)
        self.packed = tensors(pack([Encoding(ids, *(np.zeros_like(ids) for _ in range(4)))])[0])
        self.ids = torch.from_numpy(ids).long()[None]
        self.sites = maps.sites(self.ours)
        self.middle = self.sites[len(self.sites) // 2]

    def work(self, name: str) -> Callable[[], Any]:
        """What the contender of that name does."""
        middle = [self.middle]
        return {
            "plain": lambda: self.ours(self.packed),
            "one layer": lambda: self.seen(middle),
            "one layer alone": lambda: self.seen(middle, alone=True),
            "all layers": lambda: self.seen(self.sites),
            "eager": lambda: self.theirs(input_ids=self.ids),
            "eager maps": lambda: self.theirs(input_ids=self.ids, output_attentions=True),
        }[name]

    def seen(self, sites: Any, **how: Any) -> list[torch.Tensor]:
        """The maps of these layers."""
        with maps.kept(sites, **how) as got:
            self.ours(self.packed)
        return [maps.weights(site, got[site]) for site in sites]

    def difference(self) -> float:
        """The largest between our maps and transformers'."""
        theirs = self.work("eager maps")().attentions
        return max(
            float((own - other[0]).abs().max()) for own, other in zip(self.seen(self.sites), theirs, strict=True)
        )


def status(field: str) -> float:
    """A field of /proc/self/status in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) / 1024


def peak(setup: Setup, name: str) -> float:
    """MB that the call of a contender needs on top of what is there before it."""
    with torch.inference_mode():
        setup.work("eager" if name.startswith("eager") else "plain")()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the highest size counts from here
        before, kept = status("VmRSS"), setup.work(name)()
        highest = status("VmHWM")
        del kept
    return highest - before


def peaks(given: argparse.Namespace, model: str) -> dict[str, float]:
    """The same for each contender, in a process of its own."""
    found = {}
    for name in NAMES:
        words = [sys.executable, __file__, "--models", model, "--tokens", str(given.tokens), "--peak", name]
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ)
        found[name] = float(done.stdout)
    return found


def bertviz(setup: Setup, place: Path) -> dict[str, float]:
    """Seconds and MB of BertViz's page of all layers, beside the eager pass that it needs first."""
    sys.path.append(str(place))
    from bertviz import head_view

    with torch.inference_mode():
        attention = setup.work("eager maps")().attentions
    start = time.process_time()
    page = head_view(attention, [f"t{n}" for n in range(setup.ids.shape[1])], html_action="return")
    return {"page_s": time.process_time() - start, "page_mb": len(page.data.encode()) / 2**20}


def raced(given: argparse.Namespace, model: str) -> dict[str, Any]:
    """All contenders on one model."""
    setup = Setup(model, given.tokens, given.threads)
    samples: dict[str, list[float]] = {name: [] for name in NAMES}
    with torch.inference_mode():
        difference = setup.difference()
        for turn in range(given.rounds):
            for name in timing.rotated(NAMES, turn):
                samples[name].append(timing.measured(setup.work(name)).cpu_s)
    viz = bertviz(setup, given.bertviz) if given.bertviz and model == "builtin" else {}  # of base it would be 2 GB
    memory = peaks(given, model)
    one = 4 * setup.middle.attention.heads * given.tokens**2 / 2**20
    shape = f"{len(setup.sites)} layers × {setup.ours.width}"
    print(f"\n{model}: {shape}, {given.tokens} tokens; maps of a layer {one:.1f} MB")
    agrees = timing.verdict(difference, 1e-5, at_most=True)
    print(f"largest difference from transformers' maps: {difference:.1e} {agrees}")
    rows = []
    for name in NAMES:
        ratio = timing.ratios(samples["plain"], samples[name])
        verdict = timing.verdict(ratio.median, TARGET, at_most=True) if name == "one layer" else ""
        spread = timing.spread([1e3 * value for value in samples[name]])
        rows.append([name, spread.text(0), ratio.text(), f"{memory[name]:.1f}", verdict])
    print(timing.table(["contender", "CPU ms", "× plain", "peak MB", ""], rows))
    if viz:
        print(f"BertViz's page on top: {viz['page_s']:.1f} s, {viz['page_mb']:.0f} MB of HTML")
    return {"samples": samples, "memory_mb": memory, "difference": difference, "bertviz": viz, "maps_mb": one}


def main() -> None:
    """Races, prints, and writes JSON where asked."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--tokens", type=int, default=512)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--threads", type=int, default=1)
    words.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    words.add_argument("--bertviz", type=Path, help="a site-packages folder that holds bertviz and IPython")
    words.add_argument("--json", type=Path)
    words.add_argument("--peak", choices=NAMES, help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.peak:
        print(peak(Setup(given.models[0], given.tokens, given.threads), given.peak))
        return
    told = {"machine": timing.machine(), **{model: raced(given, model) for model in given.models}}
    print(f"\n{told['machine']}")
    if given.json:
        given.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
