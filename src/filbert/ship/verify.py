"""A model folder in; whether its predictions are those of when it was made, in every installed runtime, out.

golden.jsonl holds some texts and the predictions for them when the folder was written: each label once, the shortest
and the longest text, and texts that are odd (nothing, emoji, other scripts, more than fits). `verified` compares the
files with their hashes and then asks again, with torch, with onnxruntime and in int8, whichever can run.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from filbert.core.errors import FilbertError, InputError
from filbert.core.files import write_text
from filbert.core.records import Example
from filbert.engine.blanks import Blank
from filbert.engine.model import Model, load
from filbert.folder.manifest import MANIFEST, check_manifest, fingerprint, model_folder, seal, stated, was_sealed
from filbert.folder.runtime import ENCODER, SMALL_ENCODER
from filbert.folder.weights import inside
from filbert.tasks.task import Json, Trait, names_of

GOLDEN = "golden.jsonl"
MOST, MOST_CHARS = 32, 4_000  # cases of a folder that are written, and characters of one
MOST_LINES, MOST_BYTES = 1_000, 16 * 2**20  # that are read
FEW = 4  # cases of a model that writes, which takes longer
SHOWN = 16  # numbers of a vector that a case keeps
CLOSE = 1e-4  # how far the same arithmetic may differ between runtimes and machines
INT8 = "int8"
NOT_BUILT = "is not the graph that this version of filbert builds from config.json; export the folder again."
LOOSER, LOOSE, CASES_A_SLIP = 1.5, 1e-3, 32  # by which int8 may be further off on another CPU than where it was made
ODD = (
    "", " ", "a", "😀👨‍👩‍👧‍👦", "שלום עולם", "ﬁ①Ａ", "今天\n天气\t很好", "<b>粗体</b> & 1.5%", "填空" * 700,
)  # fmt: skip
USUAL = (
    "今天天气很好，我们去公园散步。",
    "北京是中国的首都。",
    "The weather is fine today.",
    "他打了一个电话，又打了一场球。",
)
BLANKS = ("今天天[MASK]很好。", "北京是中国的首[MASK]。")


@dataclass(frozen=True, slots=True)
class Replayed:
    """How the answers of one runtime differ from the golden cases."""

    runtime: str
    num_cases: int
    difference: float  # the largest of all numbers
    changed: tuple[str, ...]  # decisions that are others now, as sentences
    missing: str = ""  # why it could not run
    most: tuple[int, float] | None = (0, CLOSE)  # changed decisions and difference that are promised; None: nothing is

    @property
    def holds(self) -> bool:
        """Whether it says what the folder said when it was made, as nearly as the folder promises."""
        is_near = self.most is None or (len(self.changed) <= self.most[0] and self.difference <= self.most[1])
        return is_near and math.isfinite(self.difference)


# Making ---------------------------------------------------------------------------------------------------------------


def write(folder: Path | str, examples: Sequence[Example] = ()) -> Path:
    """Adds golden.jsonl to a model folder that was just written, and seals it anew."""
    folder = model_folder(folder)
    model = load(folder, device="cpu") if importlib.util.find_spec("torch") else load(folder)
    write_text(folder / GOLDEN, "".join(f"{_line(case)}\n" for case in cases(model, examples)))
    seal(folder)
    return folder / GOLDEN


def _line(case: Json) -> str:
    """As JSON, Chinese as Chinese; a lone surrogate, which a text from Python may hold, can only be written escaped."""
    line = json.dumps(case, ensure_ascii=False)
    return line if line.isascii() or not any("\ud800" <= char <= "\udfff" for char in line) else json.dumps(case)


def cases(model: Model, examples: Sequence[Example]) -> list[dict[str, Any]]:
    """The golden cases: the chosen texts with the model's answers."""
    task = task_of(model)
    spec = model.reader().spec if task is not None else None
    if spec is None or not spec.part:
        made: list[dict[str, Any]] = [{"text": text} for text in (*USUAL, *ODD)]
        made += [{"fill": text} for text in BLANKS] if model.engine.fills else []
    else:
        most = FEW if Trait.WRITES in spec.traits else MOST
        made = [{"asked": _listed(spec.unasked(example))} for example in chosen(examples, spec.gold_names)[:most]]
        made += [{"asked": text} for text in ODD] if Trait.ANY_TEXT in spec.traits else []
    return [{**case, "said": answer} for case, answer in zip(made, answers_of(model, made), strict=True)]


def task_of(model: Model) -> str | None:
    """What it was fine-tuned for; None where it was not."""
    try:
        return model.task()
    except InputError:
        return None


def chosen(examples: Sequence[Example], names: Callable[[Example], Sequence[str]] = names_of) -> list[Example]:
    """Some that cover what there is: one of each gold answer, the shortest, the longest, and others spread evenly."""
    fitting = [one for one in examples if sum(map(len, one.texts)) <= MOST_CHARS]
    if not fitting:
        return []
    by_size = sorted(range(len(fitting)), key=lambda place: sum(map(len, fitting[place].texts)))
    golds: dict[str, int] = {}
    for place, one in enumerate(fitting):
        for name in names(one):
            golds.setdefault(name, place)
    spread = range(0, len(fitting), max(1, len(fitting) // (MOST // 2)))
    places = dict.fromkeys([by_size[0], by_size[-1], *list(golds.values())[: MOST // 2], *spread])
    return [fitting[place] for place in list(places)[:MOST]]


def _listed(value: object) -> Any:
    """As JSON gives it back."""
    return [_listed(each) for each in value] if isinstance(value, tuple | list) else value


def _tupled(value: object) -> Any:
    """As `predict` takes it: a list of texts within stays one."""
    return (
        tuple(tuple(e) if isinstance(e, list) and _is_place(e) else e for e in value)
        if isinstance(value, list)
        else value
    )


def _is_place(value: list[object]) -> bool:
    return len(value) == 2 and all(type(each) is int for each in value)


def answers_of(model: Model, made: Sequence[Json]) -> list[Any]:
    """The model's answer to each case; all cases of a kind are one batch."""
    task = task_of(model)
    results: list[Any] = [None] * len(made)
    kinds: dict[str, list[int]] = {"asked": [], "text": [], "fill": []}
    for kind, places in kinds.items():
        places.extend(place for place, case in enumerate(made) if kind in case)
    if kinds["asked"]:
        if task is None:
            raise InputError(f"{model.folder}: its golden cases ask what it was not fine-tuned for; fetch it again.")
        requests = [_tupled(made[place]["asked"]) for place in kinds["asked"]]
        reader = model.reader()
        examples, predictions = reader.examples(requests), model.predict(requests)
        for place, example, prediction in zip(kinds["asked"], examples, predictions, strict=True):
            results[place] = reader.record(example, prediction)
    for place, vector in zip(kinds["text"], model.embed([made[at]["text"] for at in kinds["text"]]), strict=True):
        results[place] = [round(float(number), 6) for number in vector[:SHOWN]]
    for place in kinds["fill"]:
        results[place] = [_candidates(blank) for blank in model.fill(made[place]["fill"])]
    return [json.loads(json.dumps(answer)) for answer in results]


def _candidates(blank: Blank) -> list[list[str | float]]:
    return [[each.token, round(each.score, 6)] for each in blank.candidates]


# Asking again ---------------------------------------------------------------------------------------------------------


def verified(path: Path | str, expect: str | None = None) -> list[Replayed]:
    """Compares all files with their hashes, which raises where one differs, and replays the cases.

    expect: the fingerprint that the folder must have, told by whoever made it.
    """
    folder = model_folder(path)
    check_sealed(folder, expect)
    check_manifest(folder, hashes=True)
    golden = list(read(folder))
    replays = []
    for runtime, how in runtimes(folder):
        try:
            model = load(folder, device="cpu", **how)
            again = replayed(runtime, model, golden)
        except FilbertError as error:
            replays.append(Replayed(runtime, 0, 0.0, (), str(error)))
        else:
            replays.append(again if runtime != INT8 else replace(again, most=_promised(folder, len(golden))))
    return [*replays, *_graphs(folder)]


def check_sealed(folder: Path, expect: str | None) -> None:
    """Refuses a folder of filbert's whose manifest was deleted, and one with another fingerprint than expected."""
    if not isinstance(expect, str | None):
        raise InputError(f"expect is {expect!r:.60}, but must be a fingerprint as `filbert verify` prints it.")
    now = fingerprint(folder)
    if now is None and (expect is not None or was_sealed(folder)):
        raise InputError(
            f"{folder}: has no {MANIFEST}, so nothing tells what its files should be; fetch the folder again, or, if "
            'you changed it on purpose, seal it anew: python -c "from filbert.folder.manifest import seal; '
            "seal('DIR')\"."
        )
    if expect is not None and now != expect.strip().lower().removeprefix("sha256:"):
        raise InputError(
            f"{folder}: its fingerprint is {now}, but {expect.strip()[:80]} is expected; it is not the folder that was "
            "meant, or it was changed after that."
        )


def _graphs(folder: Path) -> list[Replayed]:
    """Graphs that are not those which this version builds from config.json and the weights, where it can build them."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "onnx")) or not (folder / ENCODER).exists():
        return []
    from filbert.ship import onnx

    try:
        changed = onnx.changed_graphs(folder)
    except FilbertError:  # loading it with onnxruntime has raised this already
        return []
    return [Replayed(name, 0, 0.0, (), f"{folder / name}: {NOT_BUILT}") for name in changed]


def _promised(folder: Path, num_cases: int) -> tuple[int, float] | None:
    """How far int8 may be from float32 on the golden cases; None where the folder's maker stated nothing.

    Another CPU rounds sums otherwise, and now and then a whole number with them: so somewhat more is let pass.
    """
    golden = stated(folder, INT8).get("golden")
    if golden is None:
        return None
    try:
        changed, difference = int(golden["changed"]), float(golden["difference"])
    except (TypeError, KeyError, ValueError):
        raise InputError(f"{folder / MANIFEST}: stated.{INT8}.golden must have changed and difference.") from None
    return changed + num_cases // CASES_A_SLIP, difference * LOOSER + LOOSE


def runtimes(folder: Path) -> list[tuple[str, dict[str, str]]]:
    """Those that can run this folder here."""
    ways = []
    if importlib.util.find_spec("torch"):
        ways.append(("torch", {"runtime": "torch"}))
    if importlib.util.find_spec("onnxruntime"):
        ways += [("onnx", {"runtime": "onnx"})] if (folder / ENCODER).exists() else []
        ways += [(INT8, {"runtime": "onnx", "dtype": INT8})] if (folder / SMALL_ENCODER).exists() else []
    return ways


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """The cases of a folder, line by line; no more of them, and no longer ones, than such a file may have."""
    if not (folder / GOLDEN).exists():
        return
    path = inside(folder, GOLDEN)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"{path}: has {size:,} bytes, more than the {MOST_BYTES:,} that golden cases may have.")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):  # a line ends with \n and with nothing else
            if number > MOST_LINES:
                raise InputError(f"{path}: has more than {MOST_LINES:,} cases; fetch the folder again.")
            yield _case(f"{path} line {number}", line)


def _case(where: str, line: bytes) -> dict[str, Any]:
    """One case; what is no JSON, or holds numbers that are none, is refused with its line."""
    try:
        case = json.loads(line.decode("utf-8"), parse_constant=_no_number)
        if isinstance(case, dict) and "said" in case and {"asked", "text", "fill"} & set(case):
            return case
    except (ValueError, RecursionError):
        pass
    raise InputError(f"{where}: is no golden case; fetch the folder again.")


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def replayed(runtime: str, model: Model, golden: Sequence[Json]) -> Replayed:
    """The model's answers compared with those of the golden cases."""
    worst, changed = 0.0, []
    for case, now in zip(golden, answers_of(model, golden), strict=True):
        apart, others = compared(case["said"], now)
        worst = apart if not apart <= worst else worst  # NaN is not less than anything, and stays
        shown = str(case.get("asked", case.get("text", case.get("fill"))))[:40]
        changed += [f"{shown!r}: {other}" for other in others[:1]]
    return Replayed(runtime, len(golden), worst, tuple(changed))


def compared(then: object, now: object, where: str = "") -> tuple[float, list[str]]:
    """The largest difference of two numbers at the same place, and what else is not the same."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        pairs = [(then.get(key), now.get(key), f"{where}.{key}".lstrip(".")) for key in {**then, **now}]
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = [(one, two, f"{where}[{place}]") for place, (one, two) in enumerate(zip(then, now, strict=True))]
    elif _is_number(then) and _is_number(now):
        apart = abs(float(then) - float(now))
        return apart if math.isfinite(apart) else math.inf, []
    else:
        return 0.0, [] if then == now else [f"{where or 'it'} was {str(then)[:60]}, is {str(now)[:60]}"]
    parts = [compared(*pair) for pair in pairs]
    return max((apart for apart, _ in parts), default=0.0), [other for _, others in parts for other in others]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, float) or (type(value) is int)
