"""The labelled sets that fine-tuning is measured on: a name in, its task, files, columns and measure out.

Files are read as they lie under the shared data folder. Where a set has no dev file, a share of the training file is
kept back (`--dev 10%`, told by the text alone); where it has a test file, that is what is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


@dataclass(frozen=True, kw_only=True)
class Set:
    """One set: what to learn from, what chooses the best state, what is reported."""

    task: str
    train: tuple[str, ...]
    dev: tuple[str, ...] = ("10%",)
    test: tuple[str, ...] = ()  # reported where there is one, else dev
    columns: str = ""
    settings: tuple[str, ...] = ()
    measure: str = "accuracy"
    published: str = ""  # what the manifest gives, on another split or with more data where it says so

    def files(self, root: Path) -> dict[str, tuple[str, ...]]:
        """Train, dev and test, as paths; a share stays what it is."""

        def paths(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name if name.endswith("%") else str(root / name) for name in names)

        return {"train": paths(self.train), "dev": paths(self.dev), "test": paths(self.test)}

    def command(self, name: str, root: str = "../shared/data") -> str:
        """The command line that does it."""
        files = self.files(Path(root))
        words = [f"filbert finetune {self.task}"]
        words += [f"--{flag} {path}" for flag, paths in files.items() for path in paths]
        words += [f"--columns {self.columns}"] if self.columns else []
        words += [f"--set {setting}" for setting in self.settings]
        return " ".join([*words, f"--model builtin --out runs/{name}"])


def _three(folder: str, train: str, dev: str, test: str) -> dict[str, tuple[str, ...]]:
    return {"train": (f"{folder}/{train}",), "dev": (f"{folder}/{dev}",), "test": (f"{folder}/{test}",)}


SETS = {
    "thucnews": Set(
        task="classify", train=("thucnews/train_90k.txt.xz",), dev=("thucnews/dev.txt.xz",),
        published="test, 180,000 rows: FastText 92.23, TextCNN 91.22, BERT-base 94.83",
    ),
    "tnews": Set(
        task="classify", train=("tnews/TNEWS_train.csv.xz",), columns="text=2,label=3",
        published="CLUE's split: BERT-base 56.09 dev",
    ),
    "chnsenticorp": Set(
        task="classify", **_three("sentiment_chnsenticorp", "train.tsv.xz", "dev.tsv.xz", "test.tsv.xz"),
        published="BERT-base 95.0 test",
    ),
    "waimai": Set(task="classify", train=("sentiment_waimai/waimai_10k.csv.xz",)),
    "sms_spam": Set(task="classify", train=("en_sms_spam/SMSSpamCollection.xz",), columns="label=1,text=2"),
    "ocnli": Set(
        task="pair", train=("pair_ocnli/train.10k.json.xz",),
        published="on these 10,000 rows, dev: BERT-base 69.2; with 50,000: CBOW 56.8, BiLSTM 60.5",
    ),
    "afqmc": Set(
        task="pair", train=("pair_afqmc/train.txt.xz",), dev=("pair_afqmc/dev.txt.xz",),
        published="BERT-base 74.16 dev",
    ),
    "stsb": Set(
        task="pair", **_three("pair_stsb_zh", "sts-b-train.txt.xz", "sts-b-dev.txt.xz", "sts-b-test.txt.xz"),
        settings=("task.answer=number",), measure="spearman",
    ),
    "cluener": Set(
        task="tag", train=("ner_cluener2020/train.json.xz",), measure="f1",
        published="dev: BERT-base+softmax 79.63, +CRF 80.76, +span 81.12; BiLSTM+CRF 70.00 test",
    ),
    "msra": Set(
        task="tag", train=("ner_msra/train.txt.xz",), dev=("5%",), test=("ner_msra/test.txt.xz",), measure="f1",
        published="Lattice LSTM 93.18 test",
    ),
    "resume": Set(
        task="tag", **_three("ner_resume", "train.char.bmes.xz", "dev.char.bmes.xz", "test.char.bmes.xz"),
        measure="f1", published="test: BERT-base+softmax 96.15, +CRF 96.16, +span 96.11",
    ),
    "weibo": Set(
        task="tag", measure="f1",
        **_three("ner_weibo", *(f"weiboNER_2nd_conll.{part}.xz" for part in ("train", "dev", "test"))),
    ),
    "pfr": Set(task="tag", train=("pos_pfr199801/199801.txt.xz",), measure="f1"),
    "finre": Set(task="relation", **_three("re_chinese_nre/FinRE", "train.txt.xz", "valid.txt.xz", "test.txt.xz")),
    "sanwen": Set(task="relation", **_three("re_chinese_nre/SanWen", "train.txt.xz", "valid.txt.xz", "test.txt.xz")),
    "drcd": Set(
        task="answer", train=("mrc_drcd/DRCD_dev.json.xz",), test=("mrc_drcd/DRCD_test.json.xz",), measure="f1",
        published="test, with seven times the training data: BERT-base 89.2",
    ),
    "cjrc": Set(
        task="answer", train=("mrc_cjrc/dev_ground_truth.json.xz",), measure="f1",
        published="with the full training data: BERT-base 75.4 dev",
    ),
    "c3": Set(
        task="choose", train=("mc_c3/c3-d-train.json.xz", "mc_c3/c3-m-train.json.xz"),
        dev=("mc_c3/c3-d-dev.json.xz", "mc_c3/c3-m-dev.json.xz"), published="BERT-base 64.50, ALBERT-tiny 50.26",
    ),
    "lcqmc": Set(task="embed", train=("pair_lcqmc/dev.txt.xz",), dev=("20%",), measure="spearman"),
    "stsb-embed": Set(
        task="embed", **_three("pair_stsb_zh", "sts-b-train.txt.xz", "sts-b-dev.txt.xz", "sts-b-test.txt.xz"),
        measure="spearman",
    ),
}  # fmt: skip
for _name in ("cluener", "msra", "resume", "weibo"):
    for _decoder in ("crf", "span"):
        _plain = SETS[_name]
        SETS[f"{_name}-{_decoder}"] = Set(
            task="tag", train=_plain.train, dev=_plain.dev, test=_plain.test, measure="f1",
            settings=(f"task.decoder={_decoder}",),
        )  # fmt: skip
