"""Emulators of Azure's and Google's object stores, if they are installed: processes on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pyarrow import fs

from tests.process import is_listening, started
from tests.s3_server import BUCKET, upload
from toolkit.formats import object_store
from toolkit.lab.broker import free_ports
from toolkit.lab.clients import until

AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # of its account
)


class Emulator(NamedTuple):
    """How to install and start an emulator, and how the toolkit and pyarrow find it."""

    install: str
    command: Sequence[str]
    environment: Mapping[str, str]
    uri: str

    def file_system(self, address: str) -> fs.FileSystem:
        """A client that may write."""
        if self is GOOGLE:
            return fs.GcsFileSystem(anonymous=True, endpoint_override=address, scheme="http", project_id="tests")
        return fs.AzureFileSystem(
            "devstoreaccount1", account_key=AZURITE_KEY, blob_storage_authority=address,
            dfs_storage_authority=address, blob_storage_scheme="http", dfs_storage_scheme="http",
        )  # fmt: skip


AZURE = Emulator(
    "npm install -g azurite",
    ["azurite-blob", "--blobHost", "127.0.0.1", "--blobPort", "{port}", "--inMemoryPersistence",
     "--skipApiVersionCheck", "--disableTelemetry"],
    {"AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:{port}", "AZURE_STORAGE_KEY": AZURITE_KEY},
    f"abfss://{BUCKET}@devstoreaccount1.dfs.core.windows.net",
)  # fmt: skip
GOOGLE = Emulator(
    "pip install gcp-storage-emulator",
    ["gcp-storage-emulator", "start", "--host", "127.0.0.1", "--port", "{port}", "--in-memory"],
    {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:{port}"},
    f"gs://anonymous@{BUCKET}",
)


@contextmanager
def uploaded(emulator: Emulator, folder: Path, environment: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of a folder in an emulator that runs meanwhile; skips the test without that program."""
    program, *arguments = emulator.command
    if (path := shutil.which(program)) is None:
        pytest.skip(f"no {program}: {emulator.install}")
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    for name, value in emulator.environment.items():
        environment.setenv(name, value.format(port=port))
    with started([path, *(each.format(port=port) for each in arguments)]):
        until(lambda: is_listening(address) or None, awaited=program)
        upload(emulator.file_system(address), folder, folder.name)
        object_store._file_system.cache_clear()
        yield f"{emulator.uri}/{folder.name}"
    object_store._file_system.cache_clear()
