"""A model folder and a port in; the same classifier behind FastAPI and a `transformers` pipeline out.

What a careful user writes in twenty lines, and nothing against it: fused kernels, no gradients, texts cut where the
model's length ends (filbert reads them whole). Run by serving.py; serving_litserve.py is the other peer.
"""

from __future__ import annotations

import argparse
from typing import Any

from pydantic import BaseModel


class Body(BaseModel):
    """What a request sends."""

    texts: list[str]


def classifier(folder: str) -> Any:
    """The pipeline."""
    from transformers import pipeline

    return pipeline("text-classification", folder, top_k=None, truncation=True, max_length=512, device="cpu")


def plain(folder: str, port: int) -> None:
    """FastAPI, with the pipeline in a route's function: its threads are FastAPI's."""
    import uvicorn
    from fastapi import FastAPI

    app, ask = FastAPI(), classifier(folder)

    def predict(body: Body) -> Any:
        return {"predictions": ask(body.texts, batch_size=len(body.texts))}

    def ready() -> str:
        return "ok"

    app.post("/predict")(predict)
    app.get("/ready")(ready)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("port", type=int)
    parser.add_argument("--threads", type=int, help="of each product; else as many as there are cores")
    given = parser.parse_args()
    if given.threads:
        import torch

        torch.set_num_threads(given.threads)
    plain(given.folder, given.port)
