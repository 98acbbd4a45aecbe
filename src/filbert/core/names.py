"""Names that users of transformers and scikit-learn try in; the field, the argument or the words for it here out."""

from __future__ import annotations

# Exactly the same thing under another name: an argument of `finetune`, or an option with hyphens.
SETTINGS = {
    "lr": "train.learning_rate",
    "learning_rate": "train.learning_rate",
    "weight_decay": "train.weight_decay",
    "max_length": "task.max_length",
    "max_seq_length": "task.max_length",
    "max_steps": "train.steps",
    "max_grad_norm": "train.clip",
    "warmup_ratio": "train.warmup",
}
ARGUMENTS = {
    "num_train_epochs": "epochs",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "output_dir": "out",
    "model_name_or_path": "model",
    "train_file": "train",
    "train_dataset": "train",
    "validation_file": "dev",
    "eval_dataset": "dev",
    "test_file": "test",
    "random_state": "seed",
}
_BATCH = (
    "texts are packed without padding, so a batch is told in tokens: train.batch_tokens (8 texts of up to 128 tokens: "
    "1024)."
)
_DEVICE = "the setting is machine.device (auto, cpu or cuda)."
# What is much the same, or is not there, and what to write instead.
ADVICE = {
    **dict.fromkeys(("batch_size", "per_device_train_batch_size", "train_batch_size"), _BATCH),
    **dict.fromkeys(("eval_batch_size", "per_device_eval_batch_size"), "evaluation chooses its own batches."),
    "gradient_accumulation_steps": "a batch that does not fit is taken in parts by itself; see train.batch_tokens.",
    **dict.fromkeys(("device", "use_cpu", "no_cuda"), _DEVICE),
    **dict.fromkeys(("fp16", "bf16"), "the setting is machine.precision."),
    **dict.fromkeys(("test_size", "validation_split"), "a share of the training data is kept back by dev: 10% or 0.1."),
    "warmup_steps": "the setting is train.warmup, a share of all steps, such as 0.1.",
    **dict.fromkeys(("early_stopping", "early_stopping_patience"), "the setting is train.patience, in evaluations."),
    **dict.fromkeys(("lr_scheduler_type", "scheduler"), "the setting is train.schedule."),
    **dict.fromkeys(("optim", "optimizer"), "the setting is train.optimiser (adamw, bert-adamw or muon)."),
    **dict.fromkeys(("save_steps", "eval_steps"), "the settings are train.checkpoint_every and train.evaluate_every."),
    **dict.fromkeys(("verbose", "callbacks"), "see quiet and listener."),
    **dict.fromkeys(("num_labels", "id2label"), "labels are those of the training data."),
}
