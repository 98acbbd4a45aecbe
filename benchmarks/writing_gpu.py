"""Pairs of texts in; what our encoder-decoders write after some minutes of learning, beside torch's own layers, out.

    python benchmarks/writing_gpu.py --only multi30k/ours,multi30k/peer --seeds 0,1 --budget 200 --out FILE.json
    python benchmarks/writing_gpu.py --only parity,overfit                  the proofs that need no GPU
    python benchmarks/writing_gpu.py --table FILE.json FILE.json …          the table of docs/results.md

Each lesson trains one model by the one loop and has it write what it never saw: BLEU, ROUGE or answers. `--budget`
seconds are what a lesson may take from its first file to its last number: should its steps take longer, the schedule
follows the clock, and it ends in time. FILE.json is written anew after every stage. `--rows` and `--steps` make it a
trial. Lessons are strangers: start several processes at once where a GPU has room.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import torch
from torch import nn

from filbert.core import registry
from filbert.core.random import generator
from filbert.core.settings import parsed
from filbert.folder.folder import load
from filbert.models import transformer
from filbert.run import new_models
from filbert.tasks.translate import measure as metrics
from filbert.text import vocab
from filbert.text.sentences import sentences
from filbert.text.tokenizer import Tokenizer
from filbert.train import listeners, loop, machine
from filbert.train.distributed import Ranks
from filbert.train.scores import scored
from writing_peer import Peer
from writing_sets import SETS, SHARED, Pairs

CUDA = torch.cuda.is_available()
TOKENS = 16_384  # of a pack that is written from
LAST = 0.3  # of the steps, whose weights are averaged
SHOWN = 12  # texts of each test that are kept


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What a model is, what it learns and how."""

    data: str
    task: str = "translate"
    arch: str = "transformer"  # or seq2seq, or peer: torch's layers in the shape of ours
    preset: str = "small"
    vocab: int = 8_000  # pieces, trained on the pairs; 0: those of the built-in model
    bert: bool = False  # whether the encoder begins as the built-in model
    copies: bool | None = None  # whether it may copy from its source; None: as the task has it
    fields: Mapping[str, Any] = field(default_factory=dict)  # "model.dropout": 0.3, …


CAPTIONS: dict[str, Any] = {
    "model.dropout": 0.3, "task.beam": 5, "task.length_penalty": 1.0, "task.max_length": 128,
    "train.steps": 6_000, "train.batch_tokens": 8_192, "train.learning_rate": 1e-3,
}  # fmt: skip
# cuDNN's recurrent kernels take bfloat16 from 9.13 on (pytorch/pytorch#164411); without them a step takes many times as
# long, so these compute in float32 wherever they run.
RECURRENT = {**CAPTIONS, "train.steps": 4_000, "machine.precision": "float32"}
ALIKE = {"model.width": 400, "model.embedding": 400}  # as many weights as the Transformer has
OPENINGS: dict[str, Any] = {
    "model.dropout": 0.1, "task.beam": 4, "task.max_new": 80, "task.max_length": 512, "train.steps": 4_000,
    "train.batch_tokens": 16_384, "train.learning_rate": 5e-4,
}  # fmt: skip
FRESH = {**OPENINGS, "train.learning_rate": 1e-3}
TITLES = (80, 32, 28, 24, 20)  # tokens that a title of CSL may have; its dev data choose
LESSONS = {
    "multi30k/ours": Lesson(data="multi30k", fields=CAPTIONS),
    "multi30k/peer": Lesson(data="multi30k", arch="peer", fields=CAPTIONS),
    "multi30k/attention": Lesson(data="multi30k", arch="seq2seq", preset="base", fields=RECURRENT),
    "multi30k/same": Lesson(data="multi30k", arch="seq2seq", preset="base", fields={**RECURRENT, **ALIKE}),
    "multi30k/none": Lesson(
        data="multi30k", arch="seq2seq", preset="base", fields={**RECURRENT, "model.score": "none"}
    ),
    "tatoeba": Lesson(data="tatoeba", vocab=10_000, fields={**CAPTIONS, "train.steps": 4_000}),
    "ted": Lesson(data="ted", vocab=10_000, fields={**CAPTIONS, "task.max_length": 256, "train.steps": 4_000}),
    "summarize/bert": Lesson(data="summarize", task="summarize", vocab=0, bert=True, fields=OPENINGS),
    "summarize/new": Lesson(data="summarize", task="summarize", vocab=0, fields=FRESH),
    "summarize/plain": Lesson(data="summarize", task="summarize", vocab=0, copies=False, fields=FRESH),
    "both/bert": Lesson(data="both", task="summarize", vocab=0, bert=True, fields=OPENINGS),
    "both/new": Lesson(data="both", task="summarize", vocab=0, fields=FRESH),
    "clauses/bert": Lesson(data="clauses", task="summarize", vocab=0, bert=True, fields=OPENINGS),
    "clauses/new": Lesson(data="clauses", task="summarize", vocab=0, fields=FRESH),
    "chat": Lesson(
        data="chat", task="chat",
        fields={"model.dropout": 0.1, "task.max_length": 64, "task.max_new": 32, "train.steps": 6_000,
                "train.batch_tokens": 16_384, "train.learning_rate": 1e-3},
    ),
}  # fmt: skip
PROOFS = ("parity", "overfit")


def options() -> argparse.Namespace:
    """The command line."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--only", default="multi30k", help=f"with commas, of: {', '.join((*LESSONS, *PROOFS))}")
    words.add_argument("--data", type=Path, default=SHARED, help="where the sets lie")
    words.add_argument("--seeds", default="0")
    words.add_argument("--budget", type=float, default=300, help="seconds of a lesson")
    words.add_argument("--reserve", type=float, default=0.25, help="share of the budget that is kept for writing")
    words.add_argument("--set", dest="settings", action="append", default=[], help="e.g. model.dropout=0.2")
    words.add_argument("--name", default="", help="put behind a lesson's name, where --set makes it another one")
    words.add_argument("--rows", type=int, help="only so many pairs: a trial")
    words.add_argument("--steps", type=int, help="of each lesson: a trial")
    words.add_argument("--vocab-size", type=int, help="pieces of the vocabulary: a trial")
    words.add_argument("--recorded", action="store_true", help="record the encoder's passes (train.recorded)")
    words.add_argument("--table", nargs="*", type=Path, help="files that earlier runs wrote: prints them as a table")
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    names = [name for word in given.only.split(",") for name in (*LESSONS, *PROOFS) if name.startswith(word)]
    if not names:
        words.error(f"--only {given.only}: there are {', '.join((*LESSONS, *PROOFS))}")
    given.names = list(dict.fromkeys(names))
    return given


# -- a lesson ----------------------------------------------------------------------------------------------------------


class Watch(listeners.Silent):
    """The clock of a lesson, its curve, and the mean of its last weights (Vaswani et al. 2017, §6.1)."""

    def __init__(self, steps: int, seconds: float) -> None:
        self.steps, self.seconds, self.begun = steps, seconds, time.perf_counter()
        self.training: Any = None
        self.curve: list[tuple[int, float]] = []  # (step, dev loss)
        self.losses: list[float] = []
        self.mean: list[torch.Tensor] = []
        self.count, self.at = 0, 0

    def progress(self) -> float:
        """By steps, or by the clock where that is further."""
        by_clock = (time.perf_counter() - self.begun) / self.seconds
        return max(self.training.state.step / self.steps, by_clock)

    def step(self, entry: Mapping[str, Any]) -> None:
        """Takes the weights of now into the mean; what a GPU did is told every so many steps, so once for those."""
        self.losses.append(entry["loss"])
        state = self.training.state
        if self.progress() < 1 - LAST or state.step == self.at:
            return
        self.at, self.count = state.step, self.count + 1
        with torch.no_grad():
            own = [weight.detach() for weight in self.training.stepper.model.parameters()]
            if not self.mean:
                self.mean = [weight.clone() for weight in own]
            torch._foreach_lerp_(self.mean, own, 1 / self.count)

    def evaluation(self, entry: Mapping[str, Any]) -> None:
        """Dev data were asked."""
        self.curve.append((entry["step"], round(entry["held"]["written_loss"], 4)))


@dataclass(frozen=True, kw_only=True)
class Class:
    """A lesson with its data, tokens and models, ready to begin."""

    lesson: Lesson
    pairs: Pairs
    tokenizer: Tokenizer
    task: Any  # its module's Config
    train: loop.Config
    model: Any
    machine: machine.Config

    def items(self, part: Sequence[Any], **fields: Any) -> Any:
        """These pairs as the task."""
        return registry.task(self.lesson.task).items(part, (), self.tokenizer, replace(self.task, **fields))


def ready(lesson: Lesson, given: argparse.Namespace, seed: int) -> Class:
    """Reads the data, trains the vocabulary and builds the model."""
    pairs = SETS[lesson.data](given.data).cut(given.rows)
    tokenizer = Tokenizer.load(load("builtin").folder)
    if lesson.vocab:
        texts = [text for pair in pairs.train for text in (pair.texts[0], pair.gold)]
        tokens = vocab.train(texts, given.vocab_size or lesson.vocab, lowercase=False).tokens
        tokenizer = Tokenizer(tokens, lowercase=False)
    spec = registry.model("transformer" if lesson.arch == "peer" else lesson.arch)
    task = registry.task(lesson.task).config
    kinds = {"model": spec.config, "task": task, "train": loop.Config, "machine": machine.Config}
    sections: dict[str, dict[str, Any]] = {name: {} for name in kinds}
    for name, value in lesson.fields.items():
        sections[name.split(".")[0]][name.split(".")[1]] = value
    for name, fields in parsed(given.settings, kinds).items():
        sections[name] |= fields
    sections["train"] |= {"seed": seed} | ({"steps": given.steps} if given.steps else {})
    steps = sections["train"]["steps"]
    train = {"evaluate_every": max(1, steps // 8), "checkpoint_every": steps + 1, **sections["train"]}
    here = {"compiled": "recorded" if given.recorded else "off", "workers": 1 if CUDA else 0, **sections["machine"]}
    torch.manual_seed(seed)
    return Class(
        lesson=lesson, pairs=pairs, tokenizer=tokenizer, task=task(**sections["task"]), train=loop.Config(**train),
        model=_model(lesson, spec, tokenizer, sections["model"]), machine=machine.Config(**here),
    )  # fmt: skip


def _model(lesson: Lesson, spec: Any, tokenizer: Tokenizer, fields: Mapping[str, Any]) -> Any:
    config = replace(spec.preset(lesson.preset, tokenizer.vocab_size), **fields)
    made = importlib.import_module(f"filbert.tasks.{lesson.task}.items").Items
    copies = made.copies if lesson.copies is None else lesson.copies
    parts = ("writer", "copier") if copies else ("writer",)
    if lesson.bert:
        started = new_models.writing(load("builtin"))
        model = spec.model(replace(started.config, **fields), parts)
        model.load_state_dict(started.model.state_dict(), strict=False)  # all but the decoder
        return model
    return Peer(config) if lesson.arch == "peer" else spec.model(config, parts)


def taught(made: Class, seconds: float) -> tuple[Any, Watch, dict[str, Any]]:
    """The trained model, what was seen of its course, and that in numbers."""
    watch = Watch(made.train.steps, max(1.0, seconds))
    task, held = made.items(made.pairs.train), made.items(made.pairs.dev)
    course = loop.Course(held=held, watched="written_loss", machine=made.machine, listener=watch, clock=watch)
    watch.training = training = loop.Training(made.model, task, made.train, course)
    done = training.run()
    took = time.perf_counter() - watch.begun
    model, chosen, losses = training.stepper.model, "last", {}
    if watch.count > 1:
        averaged = copy.deepcopy(model)
        for weight, mean in zip(averaged.parameters(), watch.mean, strict=True):
            weight.data = mean
        losses = {"last": dev_loss(model, held, made), "average": dev_loss(averaged, held, made)}
        chosen = min(losses, key=lambda name: losses[name])
        model = averaged if chosen == "average" else model
    told = {
        "steps": done.state.step, "of": made.train.steps, "tokens": done.state.tokens, "train_s": round(took, 1),
        "ms_per_step": round(1e3 * took / max(1, done.state.step), 2), "dev": watch.curve, "dev_loss": losses,
        "kept": chosen, "averaged": watch.count, "train_loss": round(fmean(watch.losses[-20:]), 4),
        "pairs": int(task.is_learnt.sum()), "remarks": task.remarks(), "skipped": done.state.skipped,
    }  # fmt: skip
    return model, watch, told


def dev_loss(model: nn.Module, held: Any, made: Class) -> float:
    """As the loop asks, in the precision in which it computes."""
    here = machine.chosen(made.machine)
    twin = copy.deepcopy(model).to(torch.bfloat16 if here.half else torch.float32)
    return round(loop.evaluate(twin, held, made.train, machine.one_by_one(here), Ranks())["written_loss"], 4)


def learnt(name: str, given: argparse.Namespace, seed: int, told: dict[str, Any]) -> None:
    """One lesson: `told` grows by what is found."""
    begun, lesson = time.perf_counter(), LESSONS[name]
    made = ready(lesson, given, seed)
    told |= {"lesson": name + given.name, "seed": seed, "device": torch.cuda.get_device_name() if CUDA else "cpu"}
    told |= {
        "sizes": {part: len(getattr(made.pairs, part)) for part in ("train", "dev", "test")},
        "vocab": made.tokenizer.vocab_size, "model": str(made.model.config), "settings": given.settings,
        "parameters": sum(weight.numel() for weight in made.model.parameters()),
        "read_s": round(time.perf_counter() - begun, 1), "recorded": given.recorded,
    }  # fmt: skip
    model, _, more = taught(made, given.budget * (1 - given.reserve) - told["read_s"])
    told |= more
    yield_now(given, told)
    begun_writing = time.perf_counter()
    told["test"] = measured(made, model, made.pairs.test)
    told["write_s"] = round(time.perf_counter() - begun_writing, 1)
    yield_now(given, told)
    more = made.pairs.more
    if "greetings" in more:
        told["greetings"] = answers(made, model, more["greetings"])
    if "csl_dev" in more:
        told["csl_dev"] = {size: rouge_of(made, model, more["csl_dev"], size) for size in TITLES}
        told["title"] = max(TITLES, key=lambda size: told["csl_dev"][size])
        yield_now(given, told)
        told["csl"] = measured(replace(made, task=replace(made.task, max_new=told["title"])), model, more["csl_test"])
        told["csl_long"] = measured(made, model, more["csl_test"])
    told["seconds"] = round(time.perf_counter() - begun, 1)


def yield_now(given: argparse.Namespace, told: Mapping[str, Any]) -> None:
    """Writes what is there so far, beside what the file holds of others."""
    if given.out is None:
        return
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    found[f"{told['lesson']}@{told['seed']}"] = told
    given.out.write_text(json.dumps(found, indent=1, ensure_ascii=False))


# -- what it writes ----------------------------------------------------------------------------------------------------


def measured(made: Class, model: Any, part: Sequence[Any]) -> dict[str, Any]:
    """The task's own measures, some of the texts, and the leads of one, two and three sentences for a summary."""
    task = made.items(part)
    raw = scored(copy.deepcopy(model), task, TOKENS, machine.Config(precision=made.machine.precision))
    told = task.evaluated(raw)
    said = [prediction.text or "" for prediction in task.predictions(raw)]
    drawn = generator(0, "shown").permutation(len(part))[:SHOWN]
    told["shown"] = [(part[at].texts[0][:120], said[at], part[at].gold) for at in drawn]
    told |= {"empty": sum(not text.strip() for text in said), "repeating": sum(map(repeats, said))}
    if made.lesson.task == "summarize":
        told["leads"] = {num: rouge_l([lead(pair.texts[0], num) for pair in part], part) for num in (1, 2, 3)}
    return told


def rouge_of(made: Class, model: Any, part: Sequence[Any], max_new: int) -> float:
    """ROUGE-L of texts of at most so many tokens."""
    task = made.items(part, max_new=max_new)
    raw = scored(copy.deepcopy(model), task, TOKENS, machine.Config(precision=made.machine.precision))
    return round(rouge_l([prediction.text or "" for prediction in task.predictions(raw)], part), 4)


def rouge_l(said: Sequence[str], part: Sequence[Any]) -> float:
    """Of these texts."""
    return float(metrics.rouge(said, [pair.gold for pair in part])["rouge_l"].mean())


def lead(text: str, num: int) -> str:
    """The first so many sentences."""
    edges = list(sentences(text))[:num]
    return text[: edges[-1][1]] if edges else text


def repeats(text: str) -> bool:
    """Whether it loops: some run of one to four tokens stands there three times or more, more than once in a row."""
    tokens = metrics.tokens(text)
    for size in (1, 2, 3, 4):
        for at in range(len(tokens) - 3 * size + 1):
            if tokens[at : at + size] * 3 == tokens[at : at + 3 * size]:
                return True
    runs = Counter(tuple(tokens[at : at + 3]) for at in range(len(tokens) - 2))
    return max(runs.values(), default=0) >= 3


def answers(made: Class, model: Any, part: Sequence[Any]) -> dict[str, Any]:
    """What it answers to each, by a beam and drawn; none may be empty or loop."""
    found: dict[str, Any] = {}
    for way, fields in {"beam": {}, "drawn": {"temperature": 0.7, "top_p": 0.9}}.items():
        task = made.items(part, **fields)
        raw = scored(copy.deepcopy(model), task, TOKENS, machine.Config(precision=made.machine.precision))
        said = [one.text or "" for one in task.predictions(raw)]
        asked = [pair.texts[0] for pair in part]
        found[way] = {
            "answers": dict(zip(asked, said, strict=True)),
            "empty": sum(not text.strip() for text in said), "repeating": sum(map(repeats, said)),
            "different": len(set(said)), "echoes": sum(one == two for one, two in zip(asked, said, strict=True)),
        }  # fmt: skip
    return found


# -- proofs ------------------------------------------------------------------------------------------------------------


def parity(given: argparse.Namespace, told: dict[str, Any]) -> None:
    """The same weights in ours and in torch's layers, the same batches: how far the losses are apart, step by step."""
    trial = argparse.Namespace(**{**vars(given), "rows": given.rows or 300, "steps": given.steps or 20})
    trial.settings = [*given.settings, "model.dropout=0", "train.batch_tokens=2048", "train.warmup=0.5"]
    ours = ready(LESSONS["multi30k/ours"], trial, 0)
    with torch.no_grad():  # far from the start, where layers hardly add anything and a mistake could hide
        for weight in ours.model.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)
    peer = replace(ours, model=Peer(ours.model.config).take(ours.model))
    losses = [taught(each, 1e9)[1].losses for each in (ours, peer)]
    apart = [abs(one - two) for one, two in zip(*losses, strict=True)]
    told |= {"lesson": "parity", "seed": 0, "losses": losses, "first": apart[0], "last": apart[-1], "most": max(apart)}
    first, last = losses[0][0], losses[0][-1]
    print(f"parity: loss {first:.4f} to {last:.4f}; apart {apart[0]:.1e} at first, at most {max(apart):.1e}")


def overfit(given: argparse.Namespace, told: dict[str, Any]) -> None:
    """A few pairs learnt by heart and written back: a hole in a mask would leave nothing to write from."""
    trial = argparse.Namespace(**{**vars(given), "rows": given.rows or 300, "steps": given.steps or 240})
    trial.vocab_size = given.vocab_size or 2_000
    trial.settings = [
        *given.settings, "model.dropout=0", "task.label_smoothing=0", "train.batch_tokens=2048", "task.beam=2",
    ]  # fmt: skip
    made = ready(LESSONS["multi30k/ours"], trial, 0)
    model, watch, more = taught(made, given.budget)
    test = measured(made, model, made.pairs.train)
    told |= {"lesson": "overfit", "seed": 0, **more, "test": test}
    print(f"overfit: {len(made.pairs.train)} pairs, loss {watch.losses[-1]:.4f}, BLEU {test['bleu']:.2f}")


# -- the table ---------------------------------------------------------------------------------------------------------


def line(told: Mapping[str, Any]) -> str:
    """A lesson in one line."""
    test = told.get("test", {})
    shown = {
        name: round(test[name], 4) for name in ("bleu", "chrf", "rouge_l", "lead_rouge_l", "loops") if name in test
    }
    spread = test.get("intervals", {}).get("bleu", test.get("intervals", {}).get("rouge_l", ()))
    parts = [f"{told['lesson']}@{told['seed']}", f"{told.get('parameters', 0):,} weights", str(shown)]
    parts += [f"95 % {' to '.join(f'{edge:.3f}' for edge in spread)}", f"{told.get('steps')} of {told.get('of')} steps"]
    parts += [f"{told.get('ms_per_step')} ms each, {told.get('train_s')} s, writing {told.get('write_s')} s"]
    parts += [f"dev {told.get('dev_loss')} {told.get('kept')}", str(test.get("signatures", {}).get("bleu", ""))]
    return "; ".join(parts)


def table(paths: Sequence[Path]) -> str:
    """All lessons of these files, one line each."""
    found = {name: told for path in paths for name, told in json.loads(path.read_text()).items()}
    return "\n".join(line(told) for _, told in sorted(found.items()))


def main() -> None:
    """Runs what was asked for."""
    given = options()
    if given.table:
        print(table(given.table))
        return
    if given.recorded:  # what a GPU does for the encoder hangs on a pack's size and boundaries alone, as for BERT
        transformer.Transformer.steady = True
    for name in given.names:
        for seed in map(int, given.seeds.split(",")):
            told: dict[str, Any] = {"lesson": name + given.name, "seed": seed}
            try:
                if name in PROOFS:
                    {"parity": parity, "overfit": overfit}[name](given, told)
                else:
                    learnt(name, given, seed, told)
                    print(line(told), flush=True)
            except Exception as error:  # one that fails is told, and the next goes on
                told["failed"] = f"{type(error).__name__}: {str(error)[:500]}"
                print(f"{name}@{seed} FAILED {told['failed']}", flush=True)
            yield_now(given, told)


if __name__ == "__main__":
    main()
