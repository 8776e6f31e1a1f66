"""Log directories in S3: the same rows as from a copy on this machine, ranged reads, and what can fail."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import fs

from tests.other_stores import AZURE, GOOGLE, Emulator, uploaded
from tests.process import run
from tests.s3_server import BUCKET, CREDENTIALS, S3Server, copy_sample, s3_server
from tests.sources.log_files import (
    HIGH_WATERMARK,
    SEGMENT,
    after,
    data,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
)
from tests.sources.test_logdir_one_read import bytes_read
from tests.stored import compare
from toolkit import LogDir
from toolkit.connections import connect
from toolkit.errors import NotFound, UsageError
from toolkit.formats import object_store
from toolkit.formats.log_dir_files import log_path
from toolkit.formats.object_store import LARGEST_READ, ObjectFile, ObjectPath
from toolkit.sources.logdir.log_dir_copy import copy_log_dir
from toolkit.sources.source import FILES, tables_of

BATCHES = 30_000
BUSY = 8
EMPTY = {"aborted", "metadata_log", "offsets_log"}  # in the sample


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as environment, s3_server(environment) as server:
        yield server


@pytest.fixture(scope="module")
def copies(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The same log directory on this machine and in the store."""
    folder = tmp_path_factory.mktemp("sample") / "broker-1"
    copy_sample("several-open", folder)
    return folder, s3.upload(folder, "broker-1")


@pytest.fixture(scope="module")
def long_log(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Two segments of several MB with offset indexes, and a snapshot near the end, where a transaction is open."""
    root = write_root(tmp_path_factory.mktemp("long"))
    batch = data(0, BUSY, after(), records=8)
    for first in (0, BATCHES * 8):
        offsets = range(first, first + BATCHES * 8, 8)
        batches = [struct.pack(">q", offset) + batch[8:] for offset in offsets]  # which no checksum covers
        folder = write_log(root, "orders-0", batches, base_offset=first)
        entries = [struct.pack(">ii", number * 8, number * len(batch)) for number in range(64, BATCHES, 64)]
        (folder / f"{first:020}.index").write_bytes(b"".join(entries))
    end = 2 * BATCHES * 8
    write_snapshot(folder, end - 80, {BUSY: end - 800})
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): end})
    return root, s3.upload(root, "long")


def compare_all_tables(folder: Path, uri: str) -> None:
    with LogDir(folder, consistent_copy=True) as local_files, LogDir(uri, consistent_copy=True) as stored_files:
        for table in tables_of(FILES):
            local, stored = (getattr(files, table)() for files in (local_files, stored_files))
            if "file" in local:
                local["file"] = local["file"].str.replace(str(folder), uri, regex=False)
            for frame in (local, stored):
                if "evidence" in frame:
                    frame["evidence"] = frame["evidence"].map(str).str.replace(str(folder), uri, regex=False)
            pd.testing.assert_frame_equal(local, stored, obj=table)
            assert len(stored) or table in EMPTY
        assert [str(each.path) for each in stored_files.left_out] == [
            str(each.path).replace(str(folder), uri) for each in local_files.left_out
        ]


def test_every_table_is_that_of_the_copy(copies: tuple[Path, str]) -> None:
    compare_all_tables(*copies)


@pytest.mark.full
@pytest.mark.parametrize("emulator", [AZURE, GOOGLE], ids=["azure", "google"])
def test_every_table_of_other_stores(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "broker-1"
    copy_sample("several-open", folder)
    with uploaded(emulator, folder, monkeypatch) as uri:
        compare_all_tables(folder, uri)
        with pytest.raises(NotFound, match="There is no file or folder "):
            LogDir(f"{uri}-missing")
        if emulator is AZURE:
            monkeypatch.setenv("AZURE_STORAGE_KEY", "b3RoZXI=")
            object_store._file_system.cache_clear()
            with pytest.raises(UsageError, match=f"^{uri} cannot be read: .* refuses access") as raised:
                LogDir(uri)
            assert "AZURE_STORAGE_KEY" in raised.value.do


def test_the_command_and_connect_take_a_uri(copies: tuple[Path, str]) -> None:
    folder, uri = copies
    done = run("scan", uri, "--table", "producers", "--format", "json")
    assert len(json.loads(done.stdout)["rows"]) == len(LogDir(folder).producers())
    done = run("diagnose", "--topic", "orders", "--partition", "0", "--log-dir", uri, "--format", "json")
    assert {row["error"] for row in json.loads(done.stdout)["rows"]} == {None}
    with connect(uri) as connected:
        assert connected.source.partition_rows(topics=["orders"])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/io counts what a process reads")
def test_findings_ask_for_few_bytes_and_a_complete_read_for_each_once(s3: S3Server, long_log: tuple[Path, str]) -> None:
    root, uri = long_log
    size = sum(path.stat().st_size for path in root.rglob("*.log"))
    before = bytes_read()
    LogDir(root, consistent_copy=True).finding_rows(topics=["orders"])
    local = bytes_read() - before
    before = s3.received
    [row] = LogDir(uri, consistent_copy=True).finding_rows(topics=["orders"])
    assert row["start_offset"] == 2 * BATCHES * 8 - 800
    assert s3.received - before < local + 300_000 < size / 3
    before = s3.received
    assert len(LogDir(uri).batches()) == 2 * BATCHES
    assert size < s3.received - before < size + 100_000


@pytest.mark.parametrize("cuts", [[100], [0, 50_000]])
def test_a_connection_that_breaks_is_repeated(s3: S3Server, long_log: tuple[Path, str], cuts: list[int]) -> None:
    root, uri = long_log
    path = log_path(uri) / "orders-0" / SEGMENT
    s3.break_after = [*cuts]
    assert path.read_bytes() == (root / "orders-0" / SEGMENT).read_bytes()
    assert not s3.break_after


def test_a_connection_that_stays_broken_is_an_unreadable_range(s3: S3Server, long_log: tuple[Path, str]) -> None:
    _, uri = long_log
    files = LogDir(uri)
    s3.break_after = [0] * 100
    try:
        [row] = files.batch_rows(topics=["orders"], stop=10)
    finally:
        s3.break_after = []
    assert row["error"].startswith(f"UNREADABLE: s3://{BUCKET} ")


def test_an_object_that_is_deleted_while_it_is_read_is_an_unreadable_range(s3: S3Server, tmp_path: Path) -> None:
    root = write_root(tmp_path)
    write_log(root, "orders-0", [data(number, BUSY, after(), records=20_000) for number in (0, 20_000)])
    write_log(root, "orders-0", [data(40_000, BUSY, after())], base_offset=40_000)
    files = LogDir(s3.upload(root, "deleted"))
    with files:
        store = fs.S3FileSystem(endpoint_override=s3.url)
        path = log_path(files.paths[0]) / "orders-0" / SEGMENT
        assert isinstance(path, ObjectPath)
        file = ObjectFile(path)
        file.read(10)
        store.delete_file(f"{BUCKET}/deleted/orders-0/{SEGMENT}")
        assert (file.seek(4), file.seek(-2, os.SEEK_CUR), file.seek(-10, os.SEEK_END)) == (4, 2, file.size - 10)
        with pytest.raises(FileNotFoundError):
            file.read(10)
        error, batch = files.batch_rows()
    assert error["error"] == "UNREADABLE: No such file or directory."
    assert batch["base_offset"] == 40_000
    assert files.left_out == []


@pytest.mark.parametrize("uri", ["s3://no-such-bucket", "s3://no-such-bucket/broker-1", f"s3://{BUCKET}/no-such-key"])
def test_what_does_not_exist_is_not_found(s3: S3Server, uri: str) -> None:
    with pytest.raises(NotFound, match="There is no file or folder s3://"):
        LogDir(uri)


def test_a_read_goes_on_in_larger_ranges_and_keeps_one(s3: S3Server, tmp_path: Path) -> None:
    content = bytes(range(256)) * (3 * LARGEST_READ // 256)
    (tmp_path / "large").write_bytes(content)
    path = log_path(s3.upload(tmp_path, "ranges")) / "large"
    assert isinstance(path, ObjectPath)
    ranges = []
    with ObjectFile(path) as file:
        while part := file.read(100_000):
            assert part == content[file.tell() - len(part) : file.tell()]
            ranges.append(file.range_in_memory)
    assert max(len(each) for each in ranges) == LARGEST_READ
    assert sum(len(each) for each in {*ranges}) == len(content)


@pytest.mark.parametrize("missing", ["", "AWS_ACCESS_KEY_ID"])
def test_refused_access_names_no_secret(s3: S3Server, missing: str, copies: tuple[Path, str]) -> None:
    """Credentials that the server does not know, and none."""
    _, uri = copies
    with pytest.MonkeyPatch.context() as environment, s3.authorizing(environment):
        if missing:
            environment.delenv(missing)
        with pytest.raises(UsageError, match=f"^{uri} cannot be read: s3://{BUCKET} refuses access") as raised:
            LogDir(uri)
        assert "Set AWS_PROFILE" in raised.value.do
        assert not any(value in str(raised.value) for value in CREDENTIALS.values())
        done = run("scan", uri, "--table", "partitions")
        assert "refuses access" in done.stderr
        assert not any(value in done.stdout + done.stderr for value in CREDENTIALS.values())


def test_a_public_bucket_is_read_without_credentials(s3: S3Server, copies: tuple[Path, str]) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("AWS_ACCESS_KEY_ID")
        rows = LogDir(f"s3://anonymous@{BUCKET}/broker-1").partition_rows(topics=["orders"])
    assert rows == LogDir(copies[1]).partition_rows(topics=["orders"])


def test_a_server_that_is_gone_cannot_be_reached() -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        with pytest.raises(UsageError, match="s3://nowhere cannot be reached"):
            LogDir("s3://nowhere/logs")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://backup/broker-1/", ObjectPath("s3://backup", "broker-1")),
        ("s3a://backup", ObjectPath("s3a://backup", "")),
        ("gs://anonymous@backup/a/b", ObjectPath("gs://anonymous@backup", "a/b")),
        ("abfss://logs@account.dfs.core.windows.net/a", ObjectPath("abfss://logs@account.dfs.core.windows.net", "a")),
        ("/data/s3", Path("/data/s3")),
    ],
)
def test_paths_and_uris(uri: str, path: Path | ObjectPath) -> None:
    assert log_path(uri) == path
    assert log_path(log_path(uri)) == path
    assert (log_path(uri) / "0-x.log").stem == "0-x"


STORES: Sequence[tuple[str, Mapping[str, str]]] = (
    ("s3://backup", {"AWS_REGION": "here"}),
    ("s3a://anonymous@backup", {"AWS_DEFAULT_REGION": "there", "AWS_ENDPOINT_URL": "https://one:1"}),
    ("s3://backup", {"AWS_ENDPOINT_URL_S3": "http://two:2", "AWS_ENDPOINT_URL": "https://one:1"}),
    ("gs://backup", {}),
    ("gs://anonymous@backup", {"STORAGE_EMULATOR_HOST": "https://three:3"}),
    ("gs://backup", {"STORAGE_EMULATOR_HOST": "four:4"}),
    ("abfss://logs@account.dfs.core.windows.net", {"AZURE_STORAGE_SAS_TOKEN": "sas"}),
    ("abfs://logs@account.dfs.core.chinacloudapi.cn", {"AZURE_STORAGE_KEY": "key"}),
    ("abfss://logs@account.dfs.core.windows.net", {"AZURE_STORAGE_ENDPOINT": "http://five:5/account/"}),
)


def test_each_store_is_opened_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith(("AWS_", "AZURE_", "STORAGE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for kind in ("S3FileSystem", "GcsFileSystem", "AzureFileSystem"):
        monkeypatch.setattr(fs, kind, partial(lambda kind, *args, **options: (kind, args, options), kind))
    lines = []
    for store, environment in STORES:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            kind, args, options = object_store._file_system.__wrapped__(store)
        set_ = {name: value for name, value in options.items() if value not in {None, False}}
        lines += [f"{store} {dict(environment)}", f"    {kind}{args} {set_}"]
    compare("object_stores.txt", lines)


@pytest.mark.parametrize(
    "uri",
    ["s3://", "s3://AKID:hidden@backup/logs", "abfss://logs:hidden@account.dfs.core.windows.net/a",
     "abfss://account.dfs.core.windows.net/a", "gs://hidden@backup", "s3://backup/logs?endpoint_override=hidden"],
)  # fmt: skip
def test_a_uri_with_credentials_or_options_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(UsageError) as raised:
        log_path(uri)
    assert "hidden" not in str(raised.value)


def test_a_log_directory_is_copied_from_a_store_and_its_manifest_proves_no_time(
    copies: tuple[Path, str], tmp_path: Path
) -> None:
    folder, uri = copies
    manifest = copy_log_dir(uri, tmp_path / "copy", topics=["orders"])
    assert (manifest.source, manifest.is_running) == (uri, False)
    for path in manifest.files:
        copied, source = (tmp_path / "copy" / path).read_bytes(), (folder / path).read_bytes()
        assert copied.rstrip(b"\0") == source.rstrip(b"\0")
    assert f"no broker ran on {uri} while it was copied" in LogDir(tmp_path / "copy").proof().line
