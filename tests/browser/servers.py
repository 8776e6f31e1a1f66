"""Run JupyterLab or Voila on a free local port, each with its own settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.notebooks.running import own_folders
from tests.process import is_listening, started
from toolkit.lab.broker import free_ports
from toolkit.lab.clients import until

TIMEOUT_S = 60


@contextmanager
def jupyter_lab(notebook: Path, folder: Path, *, dark: bool = False) -> Iterator[str]:
    """Serve a notebook, a copy that may be written to, and return the address that opens it."""
    _write_settings(folder, "apputils-extension/themes", {"theme": "JupyterLab Dark" if dark else "JupyterLab Light"})
    _write_settings(folder, "apputils-extension/notification", {"fetchNews": "false"})
    _write_settings(folder, "notebook-extension/tracker", {"windowingMode": "none"})  # every cell is in the page
    (port,) = free_ports(1)
    options = [
        f"--ServerApp.root_dir={notebook.parent}", f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1",
        "--no-browser", "--allow-root", "--IdentityProvider.token=", "--ServerApp.password=",
        "--ServerApp.disable_check_xsrf=True", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
    ]  # fmt: skip
    with _run_server(["jupyterlab", *options], folder, f"127.0.0.1:{port}"):
        yield f"http://127.0.0.1:{port}/lab/tree/{notebook.name}?reset"


@contextmanager
def voila(notebook: Path, folder: Path, *, dark: bool = False) -> Iterator[str]:
    """Serve the outputs of a notebook and return the address. The notebook runs at each request."""
    (port,) = free_ports(1)
    options = [
        str(notebook),
        f"--port={port}",
        "--Voila.ip=127.0.0.1",
        "--no-browser",
        f"--theme={'dark' if dark else 'light'}",
    ]
    with _run_server(["voila", *options], folder, f"127.0.0.1:{port}"):
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def _run_server(command: Sequence[str], folder: Path, address: str) -> Iterator[None]:
    settings = {f"JUPYTERLAB_{each.upper()}_DIR": str(folder / each) for each in ("settings", "workspaces")}
    environment = {**os.environ, **own_folders(folder), **settings}
    log = folder / "server.log"
    with (
        log.open("wb") as out,
        started(
            [sys.executable, "-m", *command], env=environment, cwd=folder, stdout=out, stderr=subprocess.STDOUT
        ) as server,
    ):

        def is_ready() -> bool | None:
            assert server.poll() is None, f"The server ended:\n{log.read_text(errors='replace')[-3000:]}"
            return is_listening(address) or None

        until(is_ready, awaited=f"{command[0]} ({log})")
        try:
            yield
        finally:
            server.terminate()  # the server stops its kernels, and each kernel stops its Kafka
            with suppress(subprocess.TimeoutExpired):
                server.wait(TIMEOUT_S)


def _write_settings(folder: Path, name: str, settings: dict[str, str]) -> None:
    path = folder / f"settings/@jupyterlab/{name}.jupyterlab-settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))
