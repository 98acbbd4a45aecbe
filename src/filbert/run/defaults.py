"""Nothing in; every default number of every run out, each beside the experiment that chose it.

What is not here: fields of a config that no run changes (train.loop, train.tune, teach.teacher), and what a file of
models or tasks names for itself (`TRAINS`, `LEARNS`, `RATE`). A setting of the user's goes before all of them.
"""

from __future__ import annotations

from filbert.clock.rules import Rules

# Fine-tuning: the rate -----------------------------------------------------------------------------------------------

# Of models narrower than that; small ones need, and bear, larger steps (experiments/2026-11-16-headlines-and-dropout.md
# has what became of 3e-4). Wider ones have the rate that BERT was published with.
RATES = ((256, 1e-3), (512, 3e-4), (768, 1e-4))
WIDE_RATE = 5e-5
# A model that was pretrained without dropout does not bear it later: hidden words take its place. And its vectors lie
# so close together that a fresh head wants far larger steps than they bear (experiments/2026-11-16-second-model.md,
# -headlines-and-dropout.md).
BARE_RATE, BARE_HEAD, BARE_MASKS = 1e-4, 50.0, 0.15
# It learns more from Muon, at five times the rate (experiments/2026-11-16-defaults.md). Muon's products cost the same
# whatever a step reads: on a CPU as much as reading 1,600 tokens, so a step must have some more.
MUON_TIMES, MUON_HEAD, MUON_TOKENS = 5.0, 40.0, 4_096
# A student that was made of such a model has its teacher's head, and more to mend: larger steps for all, and smaller
# ones for the head (4 of 8 layers with a third of each feed-forward, 1,500 headlines, 120 steps, one seed: 76.7 % of
# 1,000 others right instead of 75.3 %; the teacher 77.2 %; see experiments/2026-11-16-students.md).
STUDENT_TIMES, STUDENT_HEAD = 5.0, 5.0
# Times the rates of full fine-tuning, of all and of the head: for a model without dropout, and for others. Heads alone
# and maps that begin at zero want larger steps: the built-in model on 10,000 headlines, MiniLM on 500 texts of SST-2
# (experiments/2026-11-16-ways-to-tune.md).
PACES = {"frozen": ((1.0, 8.0), (1.0, 30.0)), "lora": ((30.0, 1 / 30), (10.0, 1.0))}
WRITES_ON = 5e-4  # at most, of a writer whose encoder is trained: 1e-3 spoils it (experiments/2026-11-16-writing.md)

# Fine-tuning: how much is read ----------------------------------------------------------------------------------------

# Steps that an epoch has where they are within these tokens (experiments/2026-11-16-headlines-and-dropout.md).
PER_EPOCH, FINE_TOKENS = 50, (512, 8_192)
# Passes over the data; more of them where there would be fewer steps, up to so many, or fewer examples to see, up to
# that many passes (experiments/2026-11-16-defaults.md).
EPOCHS, FEWEST, MOST_EPOCHS = 3, 240, 20
SEEN, MOST_SEEN = 30_000, 10
DECODER_PAIRS, MOST_DECODER_PASSES = (
    1_000_000,
    40,
)  # pairs that a new decoder sees, up to that many passes (-writing.md)

# New models -----------------------------------------------------------------------------------------------------------

PRESET = "small"
# Of a decoder that is put behind an encoder; it is new, so it bears dropout (experiments/2026-11-16-writing.md).
WRITER_LAYERS, WRITER_DROPOUT = 3, 0.1

# Distillation from raw text: weights of its losses (experiments/2026-11-16-students.md) -------------------------------

CONTINUED_RATE = 5e-4  # of a student that begins with its teacher's layers
RELATIONS, GOLD = 1.0, 0.0
SOFT, HIDDEN = 1.0, 1.0  # of a teacher that fills blanks; of one that does not

# Comparison -----------------------------------------------------------------------------------------------------------

VOCAB_SIZE = 12_000  # of a vocabulary that is trained on the corpus
COMPARED_TOKENS = 2_000_000  # that each model reads of it
COMPARED_CHECKPOINTS = 500  # steps between two of them

# Pretraining ----------------------------------------------------------------------------------------------------------

BUDGET = "25m"
HELD_TOKENS = 16_384  # are kept back where they are no more than a twentieth: 2,500 masked words to judge a run by
# By the clock (experiments/2026-11-16-forecast.md, -gpu-pretraining.md).
CLOCK = Rules(
    ladder=("tiny", "mini", "small", "fill", "medium", "base", "large"),
    rates=((128, 1.2e-3), (384, 1.5e-3), (512, 1e-3), (768, 5e-4), (1 << 30, 3e-4)),
    small_rate=0.128,
    small_batch=512,
    rate_power=0.4,
    batches={"cpu": (350, 512, 8_192), "cuda": (2_048, 8_192, 131_072)},
    schedule="linear",
    warmup=0.1,
    weight_decay=0.01,
    passes=3,
    dropout=0.1,
    evaluations=6,
    held_part=0.007,
    held_tokens=(8_192, 2**20),
    checkpoint_s=120.0,
    length=128,
    long_length=512,
    long_tokens=2e9,
    long_documents=512,
)
