"""A real S3 server (moto) in a process on this machine, behind a proxy that counts bytes and breaks connections."""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tests.process import is_listening, started
from toolkit.formats import object_store
from toolkit.lab import samples
from toolkit.lab.broker import free_ports
from toolkit.lab.clients import until

BUCKET = "backup"
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDOFTESTS", "AWS_SECRET_ACCESS_KEY": "secret-of-tests"}


class S3Server(socketserver.ThreadingTCPServer):
    """The proxy."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Relay)
        self.port = port
        self.received = 0  # bytes that the server has sent to clients, with the headers of HTTP
        self.is_authorizing = False
        self.break_after: list[int] = []  # bytes after which each of the next connections is cut
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def authorizing(self, environment: pytest.MonkeyPatch) -> Iterator[None]:
        """Meanwhile the server checks credentials, of which it knows none, and no profile is configured."""
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            environment.setenv(name, os.devnull)
        object_store._file_system.cache_clear()
        self._authorize_after(0)
        self.is_authorizing = True
        try:
            yield
        finally:
            self.is_authorizing = False
            self._authorize_after(10**9)
            object_store._file_system.cache_clear()

    def _authorize_after(self, requests: int) -> None:
        address = f"http://127.0.0.1:{self.port}/moto-api/reset-auth"
        form = urllib.request.Request(address, str(requests).encode(), {"Content-Type": "text/plain"})
        urllib.request.urlopen(form, timeout=60).close()

    def upload(self, folder: Path, prefix: str) -> str:
        """Upload a folder, and set the times of its files to those of the objects; the URI."""
        store = fs.S3FileSystem(
            endpoint_override=f"http://127.0.0.1:{self.port}",
            access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            allow_bucket_creation=True,
            allow_delayed_open=True,
            default_metadata={"ACL": "public-read"},
        )
        upload(store, folder, prefix)
        return f"s3://{BUCKET}/{prefix}"


def upload(store: fs.FileSystem, folder: Path, prefix: str) -> None:
    """Upload a folder to the bucket, and set the times of its files to those of the objects."""
    store.create_dir(BUCKET, recursive=False)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        key = f"{BUCKET}/{prefix}/{path.relative_to(folder).as_posix()}"
        with store.open_output_stream(key) as stream:
            stream.write(path.read_bytes())
        times = store.get_file_info(key).mtime_ns
        path.chmod(0o644)
        os.utime(path, ns=(times, times))


class Relay(socketserver.BaseRequestHandler):
    """One connection, in both directions."""

    server: S3Server

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as upstream:
            threading.Thread(target=self._requests, args=(upstream,), daemon=True).start()
            limit = None
            while data := _received(upstream):
                if self.server.break_after and len(data) > 2000:  # a body, and no answer without one
                    limit = self.server.break_after.pop(0)
                    data = data[:limit]
                self.server.received += len(data)
                try:
                    self.request.sendall(data)
                except OSError:
                    return
                if limit is not None:
                    break
            with suppress(OSError):
                self.request.shutdown(socket.SHUT_RDWR)

    def _requests(self, upstream: socket.socket) -> None:
        while data := _received(self.request):
            if self.server.is_authorizing and b"authorization:" not in data.lower():  # on which moto fails
                self.request.sendall(FORBIDDEN)
                continue
            try:
                upstream.sendall(data)
            except OSError:
                return
        with suppress(OSError):
            upstream.shutdown(socket.SHUT_RDWR)


def _received(connection: Any) -> bytes:
    try:
        found: bytes = connection.recv(1 << 16)
    except OSError:
        return b""
    return found


@contextmanager
def s3_server(environment: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that the environment names."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        until(lambda: is_listening(f"127.0.0.1:{port}") or None, awaited="the S3 server")
        with S3Server(port) as proxy:
            thread = threading.Thread(target=proxy.serve_forever, daemon=True)
            thread.start()
            with environment.context() as variables:
                for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": proxy.url, "AWS_REGION": "us-east-1"}.items():
                    variables.setenv(name, value)
                variables.setenv("AWS_EC2_METADATA_DISABLED", "true")
                object_store._file_system.cache_clear()
                yield proxy
            object_store._file_system.cache_clear()
            proxy.shutdown()
            thread.join(60)


def copy_sample(name: str, folder: Path) -> None:
    """The log directory of a sample without its empty partitions: each file takes a few requests."""
    shutil.copytree(samples.load(name).path / samples.LOG_DIR, folder)
    for partition in folder.glob("*-*/"):
        if not any(segment.stat().st_size for segment in partition.glob("*.log")):
            shutil.rmtree(partition)
