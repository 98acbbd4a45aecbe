"""A model folder and a port in; the same classifier behind FastAPI and a `transformers` pipeline, or LitServe, out.

What a careful user writes in twenty lines, and nothing against it: fused kernels, no gradients, texts cut at the
model's length (filbert reads them whole). LitServe batches what arrives, as its documentation shows. Run by serving.py.
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


def litserve(folder: str, port: int) -> None:
    """LitServe with its own batching."""
    import litserve as ls

    class API(ls.LitAPI):
        """One text a request, up to 32 of them read together."""

        def setup(self, device: str) -> None:
            """Loads the model, in the worker."""
            self.ask = classifier(folder)

        def decode_request(self, request: Any) -> Any:
            """The text."""
            return request["texts"][0]

        def predict(self, texts: Any) -> Any:
            """All of a batch."""
            return self.ask(list(texts), batch_size=len(texts))

        def encode_response(self, output: Any) -> Any:
            """One of them."""
            return {"predictions": [output]}

    api = API(max_batch_size=32, batch_timeout=0.005)
    ls.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=120, healthcheck_path="/ready").run(
        host="127.0.0.1", port=port, log_level="warning", generate_client_file=False, num_api_servers=1
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["plain", "litserve"])
    parser.add_argument("folder")
    parser.add_argument("port", type=int)
    given = parser.parse_args()
    {"plain": plain, "litserve": litserve}[given.kind](given.folder, given.port)
