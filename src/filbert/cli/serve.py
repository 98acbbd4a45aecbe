"""filbert serve: a fine-tuned model folder in, its answers over HTTP out."""

from __future__ import annotations

import click

from filbert.cli.shared import say


@click.command("serve")
@click.argument("model")
@click.option("--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is every one.")
@click.option("--task", help="classify or pair, for a published folder, which does not say; else the folder's own.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
def command(model: str, port: int, host: str, task: str | None, device: str) -> None:
    """Answer over HTTP as `predict` does, and show what the model did; MODEL is a folder, a run or `builtin`.

    POST /predict takes {"texts": ["…"]}, GET /health says whether it answers, and / is a page to type into: attention,
    explanations, blanks. Requests that come together are read together. Ctrl-C or SIGTERM answers what was accepted,
    then ends.
    """
    import socket
    from pathlib import Path

    from filbert import load
    from filbert.core.errors import InputError, needed
    from filbert.serve.app import application, task_of

    uvicorn = needed("uvicorn", "serve")
    loaded = load(model, device=None if device == "auto" else device)
    name = loaded.folder.parent.name if loaded.folder.name == "model" else loaded.folder.name
    app = application(loaded, name or Path(model).name, task)
    try:
        listening = socket.create_server((host, port), reuse_port=False)
    except OSError as error:
        raise InputError(f"{host}:{port}: cannot listen there ({error.strerror}); choose another --port.") from None
    where = listening.getsockname()
    about = task_of(loaded, task) or "a pretrained model"
    say(f"{name}: {about}, http://{where[0]}:{where[1]}/ (a page) and /predict; Ctrl-C ends it.")
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_keep_alive=30, lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])
