"""Keys and producer ids that are located in ``__transaction_state`` are those that decoding finds."""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolkit.formats import coordinator_log_rows
from toolkit.formats.batch_records import read_records
from toolkit.formats.batches import write_batch
from toolkit.formats.coordinator_log_rows import FIELDS, locate
from toolkit.formats.coordinator_records import read_transaction_key, read_transaction_value

NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)


def varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def value(dice: random.Random, version: int) -> bytes:
    """A value as Kafka writes it, with every tagged field that 4.3 knows and sometimes one that it does not."""
    head = struct.pack(">hqhib", version, dice.choice([0, 1, 255, 2**40]), dice.randrange(5), 60_000, dice.randrange(4))
    topics = [("t" * dice.choice([1, 60, 249]), dice.randrange(1, 200)) for _ in range(dice.randrange(4))]
    times = struct.pack(">qq", 1_700_000_000_000, 1_700_000_000_000)
    if version == 0:
        body = struct.pack(">i", len(topics))
        for name, count in topics:
            body += struct.pack(">h", len(name)) + name.encode() + struct.pack(f">i{count}i", count, *range(count))
        return head + body + times
    body = varint(len(topics) + 1)
    for name, count in topics:
        body += varint(len(name) + 1) + name.encode() + varint(count + 1) + struct.pack(f">{count}i", *range(count))
        body += dice.choice([b"\0", b"\x01\x09\x03abc"])
    tags = [
        (0, struct.pack(">q", dice.choice([1, 513, 2**33]))),
        (1, struct.pack(">q", dice.choice([1, 257]))),
        (2, struct.pack(">h", 2)),
        (3, struct.pack(">h", 7)),
        (9, b"later"),
    ]
    kept = [tag for tag in tags if dice.random() < 0.5]
    return head + body + times + varint(len(kept)) + b"".join(varint(n) + varint(len(d)) + d for n, d in kept)


def batches(seed: int) -> list[bytes]:
    dice = random.Random(seed)
    found = []
    for offset in range(60):
        name = dice.choice(["a", "é" * 70, "payments-7"]).encode()
        body = None if dice.random() < 0.1 else value(dice, dice.randrange(2))
        found.append(write_batch([(struct.pack(">hh", 0, len(name)) + name, body)], timestamp=NOW, base_offset=offset))
    return found


def columns(parts: Sequence[bytes]) -> tuple[bytes, Any, Any]:
    ends = np.cumsum([len(part) for part in parts])
    return b"".join(parts), ends - [len(part) for part in parts], ends


@pytest.mark.parametrize("seed", range(20))
def test_located_records_match_decoded_records(seed: int) -> None:
    parts = batches(seed)
    buf, positions, ends = columns(parts)
    for (start, end, *ids), part in zip(locate(buf, positions, ends).tolist(), parts, strict=True):
        (record,) = read_records(part)
        assert record.key is not None
        assert read_transaction_key(buf[start:end]) == read_transaction_key(record.key)
        state = None if record.value is None else read_transaction_value(record.value)
        expected = state and (state.producer_id, state.previous_producer_id, state.next_producer_id)
        assert ids == [-1 if each is None else each for each in expected or (None, None, None)]


def test_the_compiled_loop_matches_and_never_reads_beyond_a_record() -> None:
    """Cut and altered at every byte of the value: nothing is raised, no id is made up from what follows."""
    dice = random.Random(7)
    parts = [bytearray(part) for seed in range(40) for part in batches(seed)]
    for part in parts:
        part[dice.randrange(61, len(part))] = dice.randrange(256)
    buf, positions, ends = columns([bytes(part) for part in parts])
    plain, compiled = np.full((2, len(parts), FIELDS), -1, np.int64)
    coordinator_log_rows._locate(memoryview(buf), positions.tolist(), ends.tolist(), plain)
    compiled_locate = coordinator_log_rows._compiled()
    assert compiled_locate is not None
    compiled_locate(np.frombuffer(buf, np.uint8), positions, ends, compiled)
    located = plain[:, 0] > 0
    assert (plain[:, 0] == compiled[:, 0]).all()
    assert (plain[located] == compiled[located]).all()
    assert ((positions < plain[:, 0]) & (plain[:, 1] <= ends))[located].all()


RUN = """
import resource, sys
from tests.formats.test_transaction_log_keys import batches, columns
from toolkit.formats import coordinator_log_rows
coordinator_log_rows.PLAIN_BYTES = 0
{}
buf, positions, ends = columns(batches(7))
assert (coordinator_log_rows.locate(buf, positions, ends)[:, 0] > 0).all()
"""


def test_without_numba_everything_is_located() -> None:
    code = RUN.format('sys.modules["numba"] = None')
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2], timeout=300)


@pytest.mark.parametrize("why", ["no folder", "full disk"])
def test_compiled_code_is_used_without_a_writable_cache(why: str, tmp_path: Path) -> None:
    code = RUN.format("resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))" if why == "full disk" else "")
    root = Path(__file__).parents[2]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": f"{tmp_path}:{root}"}
    if why == "no folder":
        shutil.copytree(root / "toolkit", tmp_path / "toolkit", ignore=shutil.ignore_patterns("__pycache__"))
        (tmp_path / "toolkit" / "formats" / "__pycache__").touch()
        environment |= {"NUMBA_CACHE_DIR": "", "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment, timeout=300)
