"""Run JupyterLab or Voila on a free local port, each with its own settings."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TIMEOUT_S = 60


@contextmanager
def jupyter_lab(notebook: Path, folder: Path, *, dark: bool = False) -> Iterator[str]:
    """Serve a notebook, a copy that may be written to, and return the address that opens it."""
    _write_settings(folder, "apputils-extension/themes", {"theme": "JupyterLab Dark" if dark else "JupyterLab Light"})
    _write_settings(folder, "apputils-extension/notification", {"fetchNews": "false"})
    _write_settings(folder, "notebook-extension/tracker", {"windowingMode": "none"})  # every cell is in the page
    port = _free_port()
    options = [
        f"--ServerApp.root_dir={notebook.parent}",
        f"--ServerApp.port={port}",
        "--ServerApp.ip=127.0.0.1",
        "--no-browser",
        "--allow-root",
        "--IdentityProvider.token=",
        "--ServerApp.password=",
        "--ServerApp.disable_check_xsrf=True",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
    ]
    with _run_server(["jupyterlab", *options], folder, f"http://127.0.0.1:{port}/api"):
        yield f"http://127.0.0.1:{port}/lab/tree/{notebook.name}?reset"


@contextmanager
def voila(notebook: Path, folder: Path, *, dark: bool = False) -> Iterator[str]:
    """Serve the outputs of a notebook and return the address. The notebook runs at each request."""
    port = _free_port()
    options = [
        str(notebook),
        f"--port={port}",
        "--Voila.ip=127.0.0.1",
        "--no-browser",
        f"--theme={'dark' if dark else 'light'}",
    ]
    with _run_server(["voila", *options], folder, f"http://127.0.0.1:{port}/voila/static/voila.js"):
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def _run_server(command: Sequence[str], folder: Path, probe_url: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    own_folders = {
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "KAFKA_TXN_AUDIT_FILE": str(folder / "audit.jsonl"),
    }
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=os.environ | own_folders,
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_ready(server, probe_url, log)
            yield
        finally:
            server.terminate()  # the server stops its kernels, and each kernel stops its Kafka
            try:
                server.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(TIMEOUT_S)


def _write_settings(folder: Path, name: str, settings: dict[str, str]) -> None:
    path = folder / f"settings/@jupyterlab/{name}.jupyterlab-settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def _wait_until_ready(server: subprocess.Popen[bytes], probe_url: str, log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(probe_url, timeout=5):
                return
        except urllib.error.HTTPError:
            return  # any HTTP status: the server is up
        except OSError:
            log_text = log.read_text(errors="replace")[-3000:]
            assert server.poll() is None, f"The server ended:\n{log_text}"
            assert time.monotonic() < deadline, f"The server does not respond:\n{log_text}"
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
