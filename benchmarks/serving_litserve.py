"""A model folder and a port in; the same classifier behind LitServe, which batches what arrives, out."""

from __future__ import annotations

import sys
from typing import Any

import litserve as ls

from serving_peers import classifier


class API(ls.LitAPI):
    """One text a request, up to 32 of them (or as many as told) read together, as its documentation shows."""

    def __init__(self, folder: str, most: int = 32) -> None:
        super().__init__(max_batch_size=most, batch_timeout=0.005)
        self.folder = folder

    def setup(self, device: str) -> None:
        """Loads the model, in the worker."""
        self.ask = classifier(self.folder)

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # it reads the annotation as a schema
        """The text."""
        return request["texts"][0]

    def predict(self, texts: Any) -> Any:
        """All of a batch."""
        return self.ask(list(texts), batch_size=len(texts))

    def encode_response(self, output: Any) -> Any:
        """One of them."""
        return {"predictions": [output]}


if __name__ == "__main__":
    server = ls.LitServer(
        API(sys.argv[1], *map(int, sys.argv[3:])),
        accelerator="cpu",
        workers_per_device=1,
        timeout=120,
        healthcheck_path="/ready",
    )
    server.run(host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", generate_client_file=False)
