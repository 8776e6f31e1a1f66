"""Codecs round trip, within the limit. Real bytes: test_batch_records."""

import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.packed import CODECS, compress
from toolkit.errors import DecodeError
from toolkit.formats.batch_records import decompress

LIMIT = 1 << 20
SMALL = 100_000
BOMB = 64 << 20


DATA = st.binary(max_size=300) | st.builds(
    lambda data, times: data * times, st.binary(max_size=50), st.integers(0, 500)
)


@given(DATA, st.sampled_from(CODECS))
def test_every_codec_round_trips(data: bytes, codec: str) -> None:
    stored = compress(codec, data)
    for form in (stored, bytearray(stored), memoryview(stored)):
        assert decompress(codec, form, limit=LIMIT) == data
    assert decompress(codec, stored, limit=max(len(data), len(stored))) == data


@given(DATA)
def test_raw_snappy_of_librdkafka(data: bytes) -> None:
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(data)), limit=LIMIT) == data


def test_large_data_that_compresses_well() -> None:
    """The first buffer is too small for it."""
    data = bytes(10_000_000)
    for codec in CODECS:
        assert decompress(codec, compress(codec, data), limit=len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_the_limit_is_rejected(codec: str) -> None:
    stored = compress(codec, bytes(SMALL))
    with pytest.raises(DecodeError, match="The records of the batch at byte 7 take more than 99999 bytes") as caught:
        decompress(codec, stored, limit=SMALL - 1, position=7)
    assert caught.value.position == 7


@pytest.mark.parametrize("codec", CODECS)
def test_a_decompression_bomb_takes_no_memory(codec: str) -> None:
    stored = compress(codec, bytes(BOMB))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="take more than"):
            decompress(codec, stored, limit=LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * LIMIT


IN_A_SMALL_SPACE = """
import resource, sys
from pathlib import Path
from toolkit.errors import DecodeError
from toolkit.formats.batch_records import decompress
decompress("gzip", bytes.fromhex(sys.argv[1]), limit=1 << 20)
import cramjam
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (200 << 20),) * 2)
for path in sys.argv[2:]:
    try:
        decompress(Path(path).name, Path(path).read_bytes(), limit=1 << 20)
    except DecodeError as exc:
        print(exc)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux holds a process to its address space.")
def test_a_decompression_bomb_takes_no_memory_in_the_codec(tmp_path: Path) -> None:
    """Memory that a codec takes outside Python counts here too."""
    paths = []
    for codec in CODECS[1:]:
        path = tmp_path / codec
        path.write_bytes(compress(codec, bytes(512 << 20)))
        paths.append(str(path))
    small = compress("gzip", b"").hex()
    command = [sys.executable, "-c", IN_A_SMALL_SPACE, small, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.count("take more than 1048576 bytes") == len(paths), done.stdout + done.stderr


def test_a_snappy_block_that_claims_gigabytes() -> None:
    with pytest.raises(DecodeError, match="take more than"):
        decompress("snappy", b"\xff\xff\xff\xff\x0f" + bytes(20), limit=LIMIT)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (zlib.compress(b"no gzip"), "incorrect header check"),
        (compress("gzip", b"two") + compress("gzip", b"members"), "bytes follow after the end"),
        (compress("gzip", b"cut")[:-1], "they end early"),
        (b"", "they end early"),
    ],
    ids=["zlib", "two members", "cut", "empty"],  # gzip writes the time, which workers do not share
)
def test_invalid_gzip_is_rejected(stored: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decompress("gzip", stored, limit=LIMIT)


def test_a_codec_of_a_newer_kafka() -> None:
    with pytest.raises(DecodeError, match=r"The compression of the batch at byte 3 is unknown \(5\)\."):
        decompress("unknown (5)", b"", limit=LIMIT, position=3)
