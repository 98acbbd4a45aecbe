"""Dialogues and their replies come in as files of the task translate; what these look like goes out as FILES."""

from filbert.tasks.translate.files import FILES

__all__ = ["FILES"]
