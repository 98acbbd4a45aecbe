"""A model folder and a port in; the same classifier behind LitServe, which batches what arrives, out."""

from __future__ import annotations

import sys
from typing import Any

import litserve as ls

from serving_peers import classifier


class API(ls.LitAPI):
    """Up to 32 requests (or as many as told) read together, as its documentation shows."""

    def __init__(self, folder: str, most: int = 32) -> None:
        super().__init__(max_batch_size=most, batch_timeout=0.005)
        self.folder = folder

    def setup(self, device: str) -> None:
        """Loads the model, in the worker."""
        self.ask = classifier(self.folder)

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # it reads the annotation as a schema
        """Its texts."""
        return request["texts"]

    def predict(self, requests: Any) -> Any:
        """All of a batch, and to each its own."""
        texts = [text for own in requests for text in own]
        found = iter(self.ask(texts, batch_size=min(32, len(texts))))
        return [[next(found) for _ in own] for own in requests]

    def encode_response(self, output: Any) -> Any:
        """One of them."""
        return {"predictions": output}


if __name__ == "__main__":
    server = ls.LitServer(
        API(sys.argv[1], *map(int, sys.argv[3:])),
        accelerator="cpu",
        workers_per_device=1,
        timeout=120,
        healthcheck_path="/ready",
    )
    server.run(host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", generate_client_file=False)
