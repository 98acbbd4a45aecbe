"""The lines of test_sweep_options: of each command and option the ways it can be given in, and what is to come of it.

{d} is the folder of models and files, {o} an empty one. A string in place of cases says which test has them.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """Words without the option, the option as it is given, and what is to come of it."""

    base: str
    more: str
    how: str  # does, refused, told, same
    named: str = ""  # what the sentence names, where that is not the option
    before: int = 0  # how the words end without the option


Line = list[Case | str]


def line(*cases: tuple[str, ...]) -> Line:
    return [Case(*case) for case in cases]


def refused(more: str, *bases: str, named: str = "") -> Line:
    return [Case(base, more, "refused", named) for base in bases]


# name: the task, its file (None: rows), and more settings
TUNED: dict[str, tuple[str, str | None, list[str]]] = {
    "cls": ("classify", None, ["task.max_length=16", "task.overlap=4"]),
    "tag": ("tag", "tag.conll", []),
    "num": ("pair", "n.csv", ["task.answer=number"]),
    "pair": ("pair", "pair.csv", []),
    "qa": ("answer", "qa.jsonl", ["task.max_length=32", "task.overlap=8"]),
    "emb": ("embed", "n.csv", ["task.widths=16"]),
}
TINY_TEXT = "{d}/tiny -t ship -t clouds"
JSON = "a flag of the form that results have; test_surface::test_F12_every_command_takes_json"
MACHINE = "the machine's own: which computes it changes no answer; another one is refused"

# predict --------------------------------------------------------------------------------------------------------------
CLS, FILE = "{d}/cls -t ship", "{d}/cls -d {d}/l.csv"
PREDICT: dict[str, Line] = {
    "--text": line((CLS, "-t clouds", "does"), (FILE, "-t clouds", "refused")),
    "--pair": line(("{d}/num --pair ship wind", "--pair a b", "does"), (CLS, "--pair a b", "refused", "pair|single")),
    "--data": line((FILE, "-d {d}/m.csv", "does"), (CLS, "-d {d}/m.csv", "refused")),
    "--out": line((FILE, "-o {o}/a.jsonl", "does"), (CLS, "-o {o}/a.csv", "does")),
    "--columns": line(
        (FILE, "--columns text=label", "does"),
        (CLS, "--columns text=1", "refused"),
        ("{d}/num --pair a b", "--columns first=1", "refused"),
        ("{d}/tag -d {d}/tag.conll", "--columns text=9", "told", "columns"),
    ),
    "--task": line((CLS, "--task classify", "same"), (CLS, "--task tag", "refused", "tag")),
    "--set": [
        *line(
            (CLS, "--set task.temperature=3", "does"),
            (CLS, "--set train.steps=3", "refused"),
            (CLS, "--set task.temperature=3 --set task.temperature=4", "told", "task.temperature"),
            ("{d}/num --pair a b", "--set task.temperature=4", "refused", "task.temperature"),
            ("{d}/num --pair a b", "--set task.several=0.4", "refused", "task.several"),
            ("{d}/tag -t ship", "--set task.longest=4", "refused", "task.longest"),
        ),
        *(
            Case(CLS, f"--set task.{own}", "refused", own.partition("=")[0])
            for own in ("label_smoothing=0.3", "consistency=0.3", "mask_prob=0.3", "class_weights=balanced")
        ),
    ],
    "--top": [
        *line((CLS, "--top 1", "does"), ("{d}/qa --pair what ship", "--top 1", "does")),
        *refused("--top 1", "{d}/tag -t ship", "{d}/num --pair a b", "{d}/emb --pair a b"),
    ],
    "--resume": line((FILE + " -o {o}/a.csv", "--resume", "told"), (CLS, "--resume", "refused")),
    "--device": line((CLS, "--device cpu", "same"), (CLS, "--device cuda", "refused", "cuda")),
    "--runtime": line(("{d}/onnx -t ship", "--runtime torch", "same"), (CLS, "--runtime onnx", "refused", "runtime")),
    "--dtype": line(
        (CLS, "--dtype bfloat16", "does"),
        ("{d}/onnx -t ship", "--dtype int8", "does"),
        (CLS, "--dtype int8", "refused", "runtime"),
        (CLS, "--dtype float8", "refused", "dtype"),
        ("{d}/onnx -t ship --runtime onnx", "--dtype float16", "refused", "dtype"),
    ),
    "--errors": [
        Case("{d}/cls -d {d}/bad.txt", "--errors replace", "does", before=2),
        *refused("--errors replace", CLS, "{d}/num --pair a b"),
    ],
    "--encoding": [
        Case("{d}/cls -d {d}/gb.csv", "--encoding gb18030", "does", before=2),
        *refused("--encoding gb18030", CLS, "{d}/num --pair a b"),
        Case("{d}/cls -d {d}/l.parquet", "--encoding gb18030", "told", "encoding"),
        Case(FILE, "--encoding utf-99", "refused", "encoding"),
    ],
    "--json": line((CLS, "--json", "does")),
}

# the commands that write ----------------------------------------------------------------------------------------------


def writes(name: str) -> dict[str, Line]:
    model = "{d}/" + name
    text, file = f"{model} -t ship", f"{model} -d {{d}}/t.txt"
    return {
        "--text": line((text, "-t the", "does"), (file, "-t the", "refused")),
        "--data": line((file, "-d {d}/some.txt", "does"), (text, "-d {d}/t.txt", "refused")),
        "--out": line((file, "-o {o}/a.txt", "does"), (file, "-o {o}/a.csv", "does")),
        "--resume": line((file + " -o {o}/a.txt", "--resume", "told"), (text, "--resume", "refused")),
        "--set": [
            *line(
                (text, "--set task.temperature=2", "does"),
                (text, "--set task.no_repeat=1", "does"),
                (text, "--set task.max_new=1", "does"),
            ),
            *(
                Case(text, f"--set task.{own}", "refused", own.partition("=")[0])
                for own in ("label_smoothing=0.3", "mask_prob=0.3", "top_k=3", "top_p=0.3", "seed=3")
            ),
            Case(text, "--set task.temperature=2 --set task.beam=3", "refused", "task.beam"),
            Case(text, "--set task.temperature=2 --set task.length_penalty=3", "refused", "task.length_penalty"),
            Case(text, "--set task.beam=1 --set task.length_penalty=3", "refused", "task.length_penalty"),
            Case(text + " --set task.temperature=2", "--set task.seed=3", "does"),
        ],
        "--device": line((text, "--device cpu", "same"), (text, "--device cuda", "refused", "cuda")),
        "--encoding": [
            Case(f"{model} -d {{d}}/gb.txt", "--encoding gb18030", "does", before=2),
            *refused("--encoding gb18030", text),
            Case(f"{model} -d {{d}}/l.parquet", "--encoding gb18030", "told", "encoding"),
        ],
        "--json": line((text, "--json", "does")),
    }


# embed ----------------------------------------------------------------------------------------------------------------
EMBED_FILE = "{d}/tiny -d {d}/l.csv"
EMBED: dict[str, Line] = {
    "--data": line((EMBED_FILE, "-d {d}/t.txt", "does"), (TINY_TEXT, "-d {d}/t.txt", "refused")),
    "--text": line((TINY_TEXT, "-t a", "does"), (EMBED_FILE, "-t a", "refused")),
    "--out": line((TINY_TEXT, "-o {o}/a.npy", "does"), (TINY_TEXT + " --search sea", "-o {o}/a.csv", "does")),
    "--pool": line((TINY_TEXT, "--pool cls", "does"), (TINY_TEXT, "--pool own", "refused", "own")),
    "--normalize": line((TINY_TEXT, "--normalize", "does"), ("{d}/emb -t ship", "--normalize", "same")),
    "--prompt": line((TINY_TEXT, "--prompt query", "refused", "prompt")),
    "--width": line((TINY_TEXT, "--width 3", "does"), (TINY_TEXT, "--width 99", "refused", "width")),
    "--search": line((TINY_TEXT, "--search sea", "does"), (TINY_TEXT + " --clusters 2", "--search sea", "refused")),
    "--top": [
        *line((TINY_TEXT + " --search sea", "--top 1", "does")),
        *refused("--top 1", TINY_TEXT, TINY_TEXT + " --clusters 2"),
    ],
    "--clusters": line((TINY_TEXT, "--clusters 2", "does"), (TINY_TEXT + " --search a", "--clusters 1", "refused")),
    "--device": line((TINY_TEXT, "--device cpu", "same"), (TINY_TEXT, "--device cuda", "refused", "cuda")),
    "--runtime": line((TINY_TEXT, "--runtime onnx", "refused", "runtime")),
    "--dtype": line((TINY_TEXT, "--dtype bfloat16", "does"), (TINY_TEXT, "--dtype int8", "refused", "runtime")),
    "--field": [
        Case(EMBED_FILE, "--field label", "does"),
        *refused("--field text", TINY_TEXT),
        Case("{d}/tiny -d {d}/t.txt", "--field text", "refused"),
    ],
    "--unit": [
        Case("{d}/tiny -d {d}/t.txt", "--unit line", "does"),
        *refused("--unit line", TINY_TEXT),
        Case(EMBED_FILE, "--unit file", "told", "unit"),
        Case("{d}/tiny -d {d}/l.parquet", "--unit line", "told", "unit"),
        Case("{d}/tiny -d {d}/t.txt --field 1", "--unit file", "told", "unit"),
    ],
    "--encoding": [
        Case("{d}/tiny -d {d}/gb.txt", "--encoding gb18030", "does", before=2),
        *refused("--encoding gb18030", TINY_TEXT),
        Case("{d}/tiny -d {d}/l.parquet --field text", "--encoding gb18030", "told", "encoding"),
    ],
    "--errors": [
        Case("{d}/tiny -d {d}/bad.txt", "--errors replace", "does", before=2),
        *refused("--errors replace", TINY_TEXT),
    ],
    "--json": line((TINY_TEXT, "--json", "does")),
}

# explain, attend ------------------------------------------------------------------------------------------------------
WHY = "{d}/cls -t ship --no-certificate"
TESTED = "{d}/cls -t clouds --method occlusion"
LONG = "{d}/cls --no-certificate -d {d}/long.txt"
WHY_FILE = "{d}/cls -d {d}/t.txt --no-certificate --method occlusion"
EXPLAIN: dict[str, Line] = {
    "--text": line((WHY, "-t clouds", "refused"), (WHY_FILE, "-t clouds", "refused")),
    "--pair": line(
        (WHY, "-p b", "refused", "pair|single"),
        (WHY_FILE, "-p b", "refused"),
        ("{d}/pair -t a -p ship --no-certificate", "--pair the", "refused"),
    ),
    "--data": line((WHY, "-d {d}/t.txt", "refused"), (WHY_FILE, "-d {d}/some.txt", "does")),
    "--target": line((WHY, "--target rail", "does"), (WHY, "--target nowhere", "refused", "nowhere")),
    "--at": line((WHY, "--at 0:2", "refused", "target"), (WHY, "--at x", "refused")),
    "--method": line((WHY, "--method occlusion", "does")),
    "--baseline": line((WHY, "--baseline zero", "does"), (WHY, "--baseline delete", "refused", "baseline")),
    "--certificate": line((TESTED, "--no-certificate", "does")),
    "--budget": line(
        (LONG + " --method occlusion", "--budget 40", "does"),
        (WHY, "--budget 40", "told"),
        (WHY + " --method attention-rollout", "--budget 40", "told"),
    ),
    "--out": line((WHY, "-o {o}/a.html", "does"), (WHY_FILE, "-o {o}/a.jsonl", "does")),
    "--resume": line((WHY_FILE + " -o {o}/a.jsonl", "--resume", "told"), (WHY, "--resume", "refused")),
    "--columns": line(
        ("{d}/cls -d {d}/l.csv --no-certificate --method occlusion", "--columns text=label", "does"),
        (WHY, "--columns text=1", "refused"),
    ),
    "--task": line((WHY, "--task classify", "same"), (WHY, "--task pair", "refused", "pair")),
    "--seed": line(
        (LONG + " --method sampling", "--seed 3", "does"),
        (WHY, "--seed 3", "told"),
        (WHY + " --method occlusion", "--seed 3", "told"),
    ),
    "--errors": [
        Case("{d}/cls -d {d}/bad.txt --no-certificate", "--errors replace", "does", before=2),
        *refused("--errors replace", WHY),
    ],
    "--encoding": [
        Case("{d}/cls -d {d}/gb.csv --no-certificate --method occlusion", "--encoding gb18030", "does", before=2),
        *refused("--encoding gb18030", WHY),
    ],
    "--json": line((WHY, "--json", "does")),
}
SEEN = "{d}/cls -t ship"
ATTEND: dict[str, Line] = {
    "--text": line((SEEN + " -o {o}/a.html", "-t clouds", "does"), (SEEN, "-t clouds -t the", "refused", "--text")),
    "--pair": line(
        (SEEN + " -o {o}/a.html", "-p sea", "refused", "pair|single"), ("{d}/tiny -t ship", "-p sea", "does")
    ),
    "--beside": line((SEEN + " -o {o}/a.html", "--beside {d}/tiny", "does")),
    "--layers": line(
        (SEEN, "--layers 1", "does"),
        (SEEN, "--layers 9", "refused", "layers"),
        (SEEN + " --picture head -o {o}/a.svg", "--layers 1", "does"),
        (SEEN + " --picture head -o {o}/a.svg", "--layers 1,0", "told", "layer"),
    ),
    "--heads": line(
        (SEEN, "--heads 1", "does"),
        (SEEN, "--heads 9", "refused", "heads"),
        (SEEN + " --picture matrix -o {o}/a.svg", "--heads 0,1", "told", "head"),
    ),
    "--out": line((SEEN, "-o {o}/a.html", "does"), (SEEN, "-o {o}/a.svg", "refused", "--picture")),
    "--picture": line(
        (SEEN, "--picture head", "refused", "--out"), (SEEN + " -o {o}/a.html", "--picture head", "refused")
    ),
    "--explain": line(
        (SEEN + " -o {o}/a.html", "--explain occlusion", "does"),
        (SEEN + " --json", "--explain occlusion", "does"),
        (SEEN, "--explain occlusion", "refused"),
        (SEEN + " --picture head -o {o}/a.svg", "--explain occlusion", "refused"),
    ),
    "--task": line((SEEN, "--task classify", "same"), (SEEN, "--task pair", "refused", "pair")),
    "--device": line((SEEN, "--device cpu", "same"), (SEEN, "--device cuda", "refused", "cuda")),
    "--json": line((SEEN, "--json", "does")),
}

# the others that ask a model ------------------------------------------------------------------------------------------
FILL: dict[str, Line] = {
    "--model": line(("[MASK]", "--model {d}/tiny", "does"), ("[MASK]", "--model {d}/cls", "refused", "cls")),
    "--top": line(
        ("[MASK] --model {d}/tiny", "--top 1", "does"), ("[MASK] --model {d}/tiny --json", "--top 99999", "does")
    ),
    "--device": line(
        ("[MASK] --model {d}/tiny", "--device cpu", "same"), ("[MASK]", "--device cuda", "refused", "cuda")
    ),
    "--runtime": line(("[MASK] --model {d}/tiny", "--runtime onnx", "refused", "runtime")),
    "--dtype": line(("[MASK] --model {d}/tiny --json", "--dtype bfloat16", "does")),
    "--json": line(("[MASK] --model {d}/tiny", "--json", "does")),
}
SAMPLE = "{d}/gpt -t ship --tokens 6"
WRITE: dict[str, Line] = {
    "--text": line((SAMPLE, "-t the", "does")),
    "--tokens": line((SAMPLE, "--tokens 2", "refused"), ("{d}/gpt -t ship --way greedy", "--tokens 2", "does")),
    "--way": line((SAMPLE, "--way greedy", "does"), (SAMPLE, "--way beam", "does")),
    **{
        option: [
            Case(SAMPLE, f"{option} {value}", "does"),
            *refused(f"{option} {value}", SAMPLE + " --way greedy", SAMPLE + " --way beam"),
        ]
        for option, value in (("--temperature", "9"), ("--top-k", "1"), ("--top-p", "0.001"), ("--seed", "3"))
    },
    "--no-repeat": line((SAMPLE + " --way greedy", "--no-repeat 1", "does")),
    "--json": line((SAMPLE, "--json", "does")),
}
WRITE["--seed"].append(Case(SAMPLE, "--seed -1", "refused", "seed"))
EVALUATE: dict[str, Line] = {
    "--data": line(("{d}/cls -d {d}/l.csv", "-d {d}/m.csv", "refused")),
    "--train": line(
        ("{d}/cls -d {d}/l.csv --json", "--train {d}/m.csv", "does"),
        ("{d}/emb -d {d}/n.csv --json", "--train {d}/pair.csv", "does"),
    ),
    "--out": line(("{d}/cls -d {d}/l.csv", "-o {o}/r", "does")),
    "--columns": line(
        ("{d}/cls -d {d}/l.csv", "--columns text=text,label=label", "same"),
        ("{d}/cls -d {d}/l.csv", "--columns text=nowhere", "refused", "nowhere"),
    ),
    "--task": line(
        ("{d}/cls -d {d}/l.csv", "--task classify", "same"), ("{d}/cls -d {d}/l.csv", "--task pair", "refused", "pair")
    ),
    "--set": line(
        ("{d}/cls -d {d}/l.csv --json", "--set task.temperature=9", "does"),
        ("{d}/cls -d {d}/l.csv --json", "--set task.label_smoothing=0.2", "refused", "label_smoothing"),
    ),
    "--device": line(
        ("{d}/cls -d {d}/l.csv", "--device cpu", "same"), ("{d}/cls -d {d}/l.csv", "--device cuda", "refused", "cuda")
    ),
    "--encoding": [
        Case("{d}/cls -d {d}/gb.csv --json", "--encoding gb18030", "does", before=2),
        Case("{d}/cls -d {d}/l.parquet", "--encoding gb18030", "told", "encoding"),
    ],
    "--json": line(("{d}/cls -d {d}/l.csv", "--json", "does")),
}
PROBED = "{d}/tiny -d {d}/l.csv"
PROBE: dict[str, Line] = {
    "--data": line((PROBED, "-d {d}/m.csv", "refused")),
    "--task": line(
        (PROBED, "--task pair", "refused", "pair"),
        ("{d}/tiny --task=tag -d {d}/tag.conll", "--task classify", "refused"),
    ),
    "--limit": line((PROBED + " --json", "--limit 20", "does")),
    "--untrained": line((PROBED, "--untrained", "does")),
    "--out": line((PROBED, "-o {o}/a.html", "does"), (PROBED, "-o {o}/a.txt", "refused", "ending")),
    "--columns": line((PROBED, "--columns text=nowhere", "refused", "nowhere")),
    "--seed": line((PROBED + " --json", "--seed 5", "does")),
    "--encoding": line(
        (PROBED, "--encoding utf-99", "refused", "encoding"),
        ("{d}/tiny -d {d}/l.parquet", "--encoding gb18030", "told", "encoding"),
    ),
    "--json": line((PROBED, "--json", "does")),
}
PRUNED, THINNED = "{d}/cls -d {d}/l.csv -o {o}/p", "{d}/cls --layers 1 -o {o}/p"
PRUNE: dict[str, Line] = {
    "--data": [Case(PRUNED, "-d {d}/m.csv", "refused"), *refused("-d {d}/l.csv", THINNED, named="--data")],
    "--out": line((PRUNED, "-o {o}/q", "refused")),
    "--heads": [Case(PRUNED, "--heads 1", "does"), *refused("--heads 1", THINNED)],
    "--layers": line((PRUNED, "--layers 1", "refused", "--data")),
    "--inner": line((THINNED, "--inner 8", "does"), (PRUNED, "--inner 8", "refused", "--data")),
    "--method": [Case(PRUNED + " --json", "--method ablation", "does"), *refused("--method ablation", THINNED)],
    "--examples": [Case(PRUNED + " --json", "--examples 3", "does"), *refused("--examples 3", THINNED)],
    "--columns": [Case(PRUNED, "--columns text=nowhere", "refused", "nowhere"), *refused("--columns text=1", THINNED)],
    "--device": [Case(PRUNED, "--device cuda", "refused", "cuda"), *refused("--device cpu", THINNED)],
    "--encoding": [Case(PRUNED, "--encoding utf-99", "refused", "encoding"), *refused("--encoding gb18030", THINNED)],
    "--json": line((PRUNED, "--json", "does")),
}
EXPORT: dict[str, Line] = {
    "--out": line(("{d}/tiny -o {o}/e", "-o {o}/f", "refused")),
    "--format": line(("{d}/tiny -o {o}/e", "--format transformers", "does")),
    "--int8": line(
        ("{d}/tiny -o {o}/e", "--int8", "does"), ("{d}/tiny --format transformers -o {o}/e", "--int8", "refused")
    ),
    "--dev": line(
        ("{d}/cls -o {o}/e", "--dev {d}/l.csv", "refused"),
        ("{d}/cls --int8 -o {o}/e --json", "--dev {d}/l.csv", "does"),
    ),
    "--columns": [
        *refused("--columns text=1", "{d}/cls --int8 -o {o}/e", "{d}/tiny --format transformers -o {o}/e"),
        Case("{d}/cls --int8 --dev {d}/l.csv -o {o}/e", "--columns text=nowhere", "refused", "nowhere"),
    ],
    "--encoding": [
        *refused("--encoding gb18030", "{d}/cls --int8 -o {o}/e", "{d}/tiny --format transformers -o {o}/e"),
        Case("{d}/cls --int8 --dev {d}/l.csv -o {o}/e", "--encoding utf-99", "refused", "encoding"),
    ],
    "--json": line(("{d}/tiny -o {o}/e", "--json", "does")),
}
VERIFY: dict[str, Line] = {
    "--expect": line(("{d}/onnx", "--expect 00", "refused", "fingerprint")),
    "--dev": line(("{d}/onnx --json", "--dev {d}/l.csv", "does")),
    "--columns": line(
        ("{d}/onnx", "--columns text=1", "refused"),
        ("{d}/onnx --dev {d}/l.csv", "--columns text=nowhere", "refused", "nowhere"),
    ),
    "--encoding": line(
        ("{d}/onnx", "--encoding gb18030", "refused"),
        ("{d}/onnx --dev {d}/l.csv", "--encoding utf-99", "refused", "encoding"),
    ),
    "--json": line(("{d}/onnx", "--json", "does")),
}

ASKING: dict[str, dict[str, Line]] = {
    "evaluate": EVALUATE,
    "predict": PREDICT,
    "translate": writes("translate"),
    "summarize": writes("summarize"),
    "chat": writes("chat"),
    "write": WRITE,
    "fill": FILL,
    "embed": EMBED,
    "explain": EXPLAIN,
    "attend": ATTEND,
    "probe": PROBE,
    "prune": PRUNE,
    "export": EXPORT,
    "verify": VERIFY,
}
