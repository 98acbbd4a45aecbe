"""The lines of test_sweep_options for the commands that read data, train, or serve; see sweep_options."""

from __future__ import annotations

from sweep_options import Case, Line, line, refused

# data -----------------------------------------------------------------------------------------------------------------
DOCTOR: dict[str, Line] = {
    "--task": line(("{d}/l.csv", "--task corpus", "does"), ("{d}/l.csv", "--task nothing", "refused", "task")),
    "--columns": line(("{d}/l.csv", "--columns text=nowhere", "refused", "nowhere")),
    "--model": line(("{d}/l.csv --json", "--model {d}/tiny", "does")),
    "--fix": line(("{d}/l.csv", "--fix {o}/f", "does")),
    "--encoding": line(
        ("{d}/gb.csv --json", "--encoding gb18030", "does", "", 2),
        ("{d}/l.parquet", "--encoding gb18030", "told", "encoding"),
    ),
    "--json": line(("{d}/l.csv", "--json", "does")),
}
VOCAB_WORDS = "{d}/text.txt --size 60 --out {o}/v"
VOCAB: dict[str, Line] = {
    "--size": line(("{d}/text.txt --out {o}/v", "--size 50", "does")),
    "--out": line((VOCAB_WORDS, "--out {o}/w", "refused")),
    "--lowercase": line(("{d}/tag.conll --size 60 --out {o}/v", "--cased", "does")),
    "--min-count": line(("{d}/text.txt --out {o}/v", "--min-count 30", "does")),
    "--workers": line((VOCAB_WORDS, "--workers 2", "same")),
    "--field": line(
        ("{d}/l.csv --size 60 --out {o}/v", "--field label", "does"), (VOCAB_WORDS, "--field text", "refused")
    ),
    "--unit": line(
        (VOCAB_WORDS + " --json", "--unit file", "same"),
        ("{d}/l.csv --size 60 --out {o}/v", "--unit file", "told", "unit"),
    ),
    "--encoding": line(
        ("{d}/gb.txt --min-count 1 --size 60 --out {o}/v", "--encoding gb18030", "does", "", 2),
        ("{d}/l.parquet --field text --size 60 --out {o}/v", "--encoding gb18030", "told", "encoding"),
    ),
    "--errors": line(("{d}/bad.txt --min-count 1 --size 60 --out {o}/v", "--errors replace", "does", "", 2)),
    "--json": line((VOCAB_WORDS, "--json", "does")),
}
IMPORT: dict[str, Line] = {
    "--out": line(("{d}/tiny -o {o}/i", "-o {o}/j", "refused")),
    "--json": line(("{d}/tiny -o {o}/i", "--json", "does")),
}

# training -------------------------------------------------------------------------------------------------------------
FAST = "--set train.steps=1 --set train.batch_tokens=128 --set machine.threads=1"
TUNE = "classify --model {d}/tiny --train {d}/l.csv -o {o}/r " + FAST
FREE = "classify --model {d}/tiny --train {d}/l.csv -o {o}/r --set machine.threads=1 --set train.batch_tokens=512"
NEW = "classify --arch bert --preset tiny --train {d}/l.csv -o {o}/r " + FAST
UNUSED = (  # of fine-tuning a classifier without dev data
    "tune.rank=4",
    "tune.alpha=3",
    "tune.augment_prob=0.3",
    "tune.augment_copies=2",
    "train.patience=2",
    "train.evaluate_every=1",
    "machine.timeout_s=9",
    "machine.sharding=shard",
    "machine.compiled=recorded",
)
FINETUNE: dict[str, Line] = {
    "--train": line((TUNE, "--train {d}/m.csv", "does")),
    "--dev": line((TUNE, "--dev {d}/m.csv", "does"), (TUNE, "--dev 20%", "does")),
    "--test": line((TUNE, "--test {d}/m.csv", "does"), (TUNE, "--test 20%", "refused", "test")),
    "--model": line((NEW, "--model {d}/tiny", "refused")),
    "--arch": line((TUNE, "--arch bert", "refused")),
    "--preset": line(
        (TUNE, "--preset tiny", "refused", "preset"),
        (
            "classify --train {d}/l.csv -o {o}/r --arch gpt --set machine.threads=1 --set train.steps=1",
            "--preset tiny",
            "does",
        ),
    ),
    "--vocab": line((TUNE, "--vocab {d}/tiny", "refused", "vocab"), (NEW, "--vocab {d}/tiny", "does")),
    "--out": line((TUNE, "--out {o}/s", "refused")),
    "--epochs": line((FREE, "--epochs 2", "does"), (TUNE, "--epochs 2", "told", "epochs")),
    "--columns": line((TUNE, "--columns text=nowhere", "refused", "nowhere")),
    "--set": [
        *(Case(TUNE, f"--set {own}", "told", own.partition("=")[0]) for own in UNUSED),
        Case(TUNE, "--set tune.method=frozen --set tune.layer_decay=0.5", "told", "tune.layer_decay"),
        Case(TUNE, "--set tune.method=lora --set tune.rank=4", "does"),
        Case(TUNE, "--set task.class_weights=balanced --set task.several=true --set task.label_smoothing=0.1", "does"),
        Case(
            "pair --model {d}/tiny --train {d}/n.csv -o {o}/r --set task.answer=number " + FAST,
            "--set task.label_smoothing=0.2",
            "refused",
            "task.label_smoothing",
        ),
        Case(
            "pair --model {d}/tiny --train {d}/n.csv -o {o}/r --set task.answer=number " + FAST,
            "--set task.class_weights=balanced",
            "refused",
            "task.class_weights",
        ),
        Case(
            "pair --model {d}/tiny --train {d}/n.csv -o {o}/r --set task.answer=number " + FAST,
            "--set task.temperature=2",
            "told",
            "task.temperature",
        ),
        Case(
            "pair --model {d}/tiny --train {d}/n.csv -o {o}/r --set task.answer=number " + FAST,
            "--set task.consistency=0.5",
            "refused",
            "task.consistency",
        ),
        Case(
            "tag --model {d}/tiny --train {d}/tag.conll -o {o}/r " + FAST,
            "--set task.longest=5",
            "told",
            "task.longest",
        ),
        Case(TUNE, "--set train.steps=2", "told", "train.steps"),
    ],
    "--seed": line((TUNE, "--seed 3", "does"), (TUNE, "--seed 3 --set train.seed=5", "refused", "seed")),
    "--resume": line((TUNE, "--resume", "told")),
    "--force": line((TUNE, "--force", "refused")),
    "--encoding": line(
        ("classify --model {d}/tiny --train {d}/gb.csv -o {o}/r " + FAST, "--encoding gb18030", "does", "", 2),
        ("classify --model {d}/tiny --train {d}/l.parquet -o {o}/r " + FAST, "--encoding gb18030", "told", "encoding"),
    ),
    "--json": line((TUNE, "--json", "does")),
}
PRE = "{d}/text.txt --preset tiny --vocab {d}/tiny -o {o}/r " + FAST
ON = "{d}/text.txt --model {d}/tiny -o {o}/r --set task.max_length=64 " + FAST
GPT = "{d}/text.txt --arch gpt --preset tiny --vocab {d}/tiny -o {o}/r " + FAST
PRETRAIN: dict[str, Line] = {
    "--out": line((PRE, "--out {o}/s", "refused")),
    "--budget": line((PRE, "--budget 20s", "refused"), (GPT, "--budget 20s", "refused")),
    "--arch": line((PRE, "--arch gpt", "does"), (ON, "--arch gpt", "refused", "--arch bert")),
    "--preset": line(
        ("{d}/text.txt --vocab {d}/tiny -o {o}/r " + FAST, "--preset mini", "does"), (ON, "--preset mini", "refused")
    ),
    "--objective": line(
        (PRE, "--objective mlm", "does"),
        (GPT, "--objective mlm", "refused"),
        (PRE, "--objective mlm --set task.objective=mlm+sop", "refused", "objective"),
    ),
    "--masking": line(
        (PRE, "--masking span", "does"),
        (GPT, "--masking token", "refused"),
        (PRE, "--masking span --set task.masking=token", "refused", "masking"),
    ),
    "--vocab": line((ON, "--vocab {d}/tiny", "refused")),
    "--vocab-size": line(
        ("{d}/text.txt --preset tiny -o {o}/r " + FAST, "--vocab-size 60", "does"),
        (PRE, "--vocab-size 60", "refused"),
        (ON, "--vocab-size 60", "refused"),
    ),
    "--model": line((PRE, "--model {d}/tiny", "refused", "--preset")),
    "--without": line((PRE, "--without {d}/apart.txt", "does"), (PRE, "--without {d}/some.txt", "refused", "kept out")),
    "--shards": line((PRE, "--shards {o}/s", "does")),
    "--set": [
        *(
            Case(PRE, f"--set {own}", "told", own.partition("=")[0])
            for own in ("train.patience=2", "train.head_rate=3", "machine.timeout_s=9", "machine.sharding=shard")[2:]
        ),
        Case(PRE, "--set train.steps=2", "told", "train.steps"),
        Case(
            "{d}/text.txt --arch word2vec --preset tiny --vocab {d}/tiny -o {o}/r --set task.output=hierarchical "
            + FAST,
            "--set task.negatives=3",
            "told",
            "task.negatives",
        ),
        Case(
            "{d}/text.txt --arch word2vec --preset tiny --vocab {d}/tiny -o {o}/r --set task.output=hierarchical "
            + FAST,
            "--set task.noise_power=0.5",
            "told",
            "task.noise_power",
        ),
    ],
    "--seed": line((PRE, "--seed 3", "does"), (PRE, "--seed 3 --set train.seed=5", "refused", "seed")),
    "--resume": line((PRE, "--resume", "told")),
    "--force": line((PRE, "--force", "refused")),
    "--field": line(
        ("{d}/l.csv --preset tiny --vocab {d}/tiny -o {o}/r " + FAST, "--field label", "does"),
        (PRE, "--field text", "refused", "field"),
    ),
    "--unit": line(
        (PRE, "--unit line", "does"),
        ("{d}/l.csv --field text --preset tiny --vocab {d}/tiny -o {o}/r " + FAST, "--unit file", "told", "unit"),
    ),
    "--encoding": line(
        ("{d}/gb.txt --preset tiny --vocab {d}/tiny -o {o}/r " + FAST, "--encoding gb18030", "does", "", 2),
        (
            "{d}/l.parquet --field text --preset tiny --vocab {d}/tiny -o {o}/r " + FAST,
            "--encoding gb18030",
            "told",
            "encoding",
        ),
    ),
    "--errors": line(
        (
            "{d}/bad.txt --unit line --objective=mlm --preset tiny --vocab {d}/tiny -o {o}/r " + FAST,
            "--errors replace",
            "does",
            "",
            2,
        )
    ),
    "--json": line((PRE, "--json", "does")),
}
TEACH = "{d}/cls -d {d}/l.csv --layers 1 -o {o}/r " + FAST
PLAIN = "{d}/tiny -d {d}/text.txt --general --layers 1 -o {o}/r " + FAST
DISTILL: dict[str, Line] = {
    "--data": line((TEACH, "-d {d}/m.csv", "does")),
    "--out": line((TEACH, "--out {o}/s", "refused")),
    "--preset": line((TEACH, "--preset tiny", "refused", "preset")),
    "--arch": line(
        (TEACH, "--arch bert", "refused", "arch"),
        (PLAIN, "--arch bert", "refused", "arch"),
        ("{d}/cls -d {d}/l.csv --preset tiny -o {o}/r " + FAST, "--arch gpt", "does"),
    ),
    "--layers": line(("{d}/cls -d {d}/l.csv --inner 16 -o {o}/r " + FAST, "--layers 1", "does")),
    "--inner": line((TEACH, "--inner 16", "does")),
    "--student": line((TEACH, "--student {d}/tiny", "refused", "student")),
    "--general": line((TEACH, "--general", "does")),
    "--task": line((TEACH, "--task classify", "same"), (PLAIN, "--task pair", "refused")),
    "--dev": line((TEACH, "--dev {d}/m.csv", "does"), (PLAIN, "--dev {d}/m.csv", "refused")),
    "--test": line((TEACH, "--test {d}/m.csv", "does"), (PLAIN, "--test {d}/m.csv", "refused")),
    "--epochs": line((TEACH, "--epochs 2", "told", "epochs"), (PLAIN, "--epochs 2", "refused")),
    "--columns": line((TEACH, "--columns text=nowhere", "refused", "nowhere"), (PLAIN, "--columns text=1", "refused")),
    "--set": line(
        (TEACH, "--set distil.temperature=9", "does"),
        (TEACH, "--set distil.temperature=9 --set distil.soft=0 --set distil.hidden=1", "told", "distil.temperature"),
        (TEACH, "--set distil.relation_heads=2", "told", "distil.relation_heads"),
        (TEACH, "--set distil.pairs=qq", "told", "distil.pairs"),
        (TEACH, "--set distil.teacher_layer=1", "told", "distil.teacher_layer"),
    ),
    "--seed": line((TEACH, "--seed 3", "does"), (TEACH, "--seed 3 --set train.seed=5", "refused", "seed")),
    "--resume": line((TEACH, "--resume", "told"), (PLAIN, "--resume", "told")),
    "--force": line((TEACH, "--force", "refused"), (PLAIN, "--force", "refused")),
    "--encoding": line((TEACH, "--encoding utf-99", "refused", "encoding")),
    "--json": line((TEACH, "--json", "does")),
}
VERSUS = "--models {d}/tiny --train {d}/l.csv --test {d}/m.csv -o {o}/c " + FAST
VERSUS_NEW = "--models bert --preset tiny --train {d}/l.csv --test {d}/m.csv -o {o}/c " + FAST
COMPARE: dict[str, Line] = {
    "--models": line((VERSUS, "--models bert", "refused")),
    "--task": line((VERSUS, "--task pair", "refused", "pair|column")),
    "--train": line((VERSUS, "--train {d}/m.csv", "does")),
    "--dev": line((VERSUS, "--dev {d}/m.csv", "does")),
    "--test": line((VERSUS, "--test {d}/l.csv", "does")),
    "--corpus": line((VERSUS, "--corpus {d}/text.txt", "refused", "corpus")),
    "--tokens": line((VERSUS, "--tokens 100", "refused", "tokens"), (VERSUS_NEW, "--tokens 100", "refused", "tokens")),
    "--preset": line((VERSUS, "--preset tiny", "refused", "preset")),
    "--vocab": line((VERSUS, "--vocab {d}/tiny", "refused", "vocab"), (VERSUS_NEW, "--vocab {d}/tiny", "does")),
    "--out": line((VERSUS, "--out {o}/d", "refused")),
    "--set": line(
        (VERSUS_NEW, "--set pretrain.train.steps=3", "refused", "pretrain"),
        (VERSUS, "--set train.steps=3", "told", "train.steps"),
    ),
    "--seed": line((VERSUS, "--seed 4", "does")),
    "--json": line((VERSUS, "--json", "does")),
}

# What listens, and what takes long: their options do one thing each ---------------------------------------------------
DEMO: dict[str, Line] = {name: ["tests/docs/test_docs.py"] for name in ("--out", "--steps", "--seed", "--json")}
SERVED: dict[str, str] = {  # each changes the plan of a server; test_what_a_server_is_told
    "--name": "a",
    "--hosts": "a.example",
    "--task": "pair",
    "--device": "cpu",
    "--runtime": "onnx",
    "--dtype": "int8",
    "--batch-tokens": "64",
    "--max-body": "9",
    "--max-texts": "9",
    "--max-tokens": "9",
    "--max-answer": "9",
    "--max-in-work": "9",
    "--queue": "9",
    "--deadline": "9",
    "--patience": "9",
    "--no-look": "",
    "--look-seconds": "9",
    "--drain": "9",
    "--keys": "{d}/keys",
    "--cors": "https://a.example",
    "--log": "none",
}
ELSEWHERE = ("--port", "--host", "--workers", "--json")  # what listens: tests/serve/test_serve.py
SERVE: dict[str, Line] = {
    **{name.replace("--no-look", "--look"): ["test_what_a_server_is_told"] for name in SERVED},
    **{name: ["tests/serve/test_serve.py"] for name in ELSEWHERE},
    "--look-seconds": [*refused("--look-seconds 3", "{d}/cls --no-look"), *refused("--look-seconds nan", "{d}/cls")],
    "--name": refused("--name a", "{d}/cls {d}/tag"),
    "--drain": [
        *refused("--drain nan", "{d}/cls"),
        *refused("--drain -1", "{d}/cls"),
        *refused("--drain inf", "{d}/cls"),
    ],
    "--deadline": refused("--deadline nan", "{d}/cls", named="--deadline"),
    "--patience": refused("--patience -1", "{d}/cls", named="--patience"),
}
RUNS: dict[str, dict[str, Line]] = {
    "demo": DEMO,
    "doctor": DOCTOR,
    "vocab": VOCAB,
    "pretrain": PRETRAIN,
    "finetune": FINETUNE,
    "compare": COMPARE,
    "distill": DISTILL,
    "import": IMPORT,
    "serve": SERVE,
}
