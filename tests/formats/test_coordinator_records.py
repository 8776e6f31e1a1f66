"""Records of the coordinators' topics: as coordinators and Kafka's classes wrote them, as written here, invalid."""

import itertools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.packed import raw, unsigned_varint
from tests.stored import compare
from toolkit.errors import DecodeError, UsageError
from toolkit.formats.coordinator_records import (
    GROUP_EPOCH_KINDS,
    KINDS,
    STATES,
    GroupKey,
    TransactionState,
    coordinator_partition,
    read_group_epoch,
    read_group_key,
    read_group_metadata,
    read_offset_commit,
    read_transaction_key,
    read_transaction_value,
)
from toolkit.schema.table import TopicPartition

# Captured from __transaction_state of the lab's Kafka 3.5.2 and 4.3.1 on 2026-11-21. Two ids: a librdkafka 2.16
# producer that wrote to three partitions, and Kafka's own ProducerPerformance (transaction version 2 on 4.3.1).
GOLDEN = {
    "3.5.2 init": ("0000000000000000000000000000afc800ffffffff000001a1fe45be79ffffffffffffffff"),
    "3.5.2 ongoing": (
        "0000000000000000000000000000afc8010000000200087061796d656e7473000000010000000000066f726465727300000002000000"
        "0000000002000001a1fe45bea8000001a1fe45bea8"
    ),
    "3.5.2 committed": ("0000000000000000000000000000afc80400000000000001a1fe45bee5000001a1fe45bea8"),
    "3.5.2 aborting": (
        "0000000000000000000000000000afc8030000000100066f72646572730000000100000001000001a1fe45bf27000001a1fe45bf1a"
    ),
    "4.3.1 init": ("0001000000000000000000000000afc80000000001a1fe46003effffffffffffffff0100080000000000000000"),
    "4.3.1 ongoing": (
        "0001000000000000000000000000afc80103097061796d656e7473020000000000076f726465727303000000000000000200000001a1"
        "fe46008a000001a1fe46008a0100080000000000000000"
    ),
    "4.3.1 ongoing, transaction version 2": (
        "0001000000000000000100000000ea600102097061796d656e7473020000000000000001a1fe460f11000001a1fe460f110200080000"
        "00000000000102020002"
    ),
    "4.3.1 committing, transaction version 2: the epoch has grown": (
        "0001000000000000000100010000ea600202097061796d656e7473020000000000000001a1fe460f33000001a1fe460f110200080000"
        "00000000000102020002"
    ),
}
INT16, INT32, INT64 = (st.integers(min_value=-1, max_value=2 ** (bits - 1) - 1) for bits in (16, 32, 64))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@st.composite
def states(draw: st.DrawFn) -> TransactionState:
    version = draw(st.sampled_from([0, 1]))

    def known(numbers: st.SearchStrategy[int]) -> int | None:
        return draw(numbers.map(lambda number: None if number == -1 else number))

    return TransactionState(
        version=version,
        producer_id=known(INT64),
        producer_epoch=known(INT16),
        timeout_ms=draw(INT32),
        state=draw(st.sampled_from(STATES)),
        topic_partitions=tuple(draw(st.lists(st.builds(TopicPartition, TEXT, INT32), max_size=5))),
        last_update_timestamp_ms=known(INT64),
        start_timestamp_ms=known(INT64),
        previous_producer_id=known(INT64) if version else None,
        next_producer_id=known(INT64) if version else None,
        next_producer_epoch=known(INT16) if version else None,
        client_transaction_version=draw(st.integers(0, 2)) if version else None,
    )


def write_key(transactional_id: str) -> bytes:
    data = transactional_id.encode()
    return struct.pack(">hh", 0, len(data)) + data


def write_value(state: TransactionState, *, later_tags: int = 0) -> bytes:
    """A value as ``TransactionLog.valueToBytes`` writes it; partitions next to each other share their topic."""
    flexible = state.version == 1
    topics = [
        (topic, [partition for _, partition in each])
        for topic, each in itertools.groupby(state.topic_partitions, key=lambda each: each[0])
    ]
    out = struct.pack(">hqhib", state.version, raw(state.producer_id), raw(state.producer_epoch), state.timeout_ms, 0)
    out = out[:-1] + bytes([STATES.index(state.state)])
    if state.state == "Empty" and not topics:
        out += b"\0" if flexible else b"\xff" * 4
    else:
        out += length(len(topics), flexible=flexible)
        for topic, partitions in topics:
            data = topic.encode()
            out += (unsigned_varint(len(data) + 1) if flexible else struct.pack(">h", len(data))) + data
            out += length(len(partitions), flexible=flexible) + struct.pack(f">{len(partitions)}i", *partitions)
            out += b"\0" if flexible else b""
    out += struct.pack(">qq", raw(state.last_update_timestamp_ms), raw(state.start_timestamp_ms))
    return out + (write_tags(state, later_tags) if flexible else b"")


def write_tags(state: TransactionState, later: int) -> bytes:
    tags = [
        (0, b"" if state.previous_producer_id is None else struct.pack(">q", state.previous_producer_id)),
        (1, b"" if state.next_producer_id is None else struct.pack(">q", state.next_producer_id)),
        (2, struct.pack(">h", state.client_transaction_version) if state.client_transaction_version else b""),
        (3, b"" if state.next_producer_epoch is None else struct.pack(">h", state.next_producer_epoch)),
        *[(200 + i, b"of a later Kafka") for i in range(later)],
    ]
    present = [(tag, data) for tag, data in tags if data]
    out = unsigned_varint(len(present))
    return out + b"".join(unsigned_varint(tag) + unsigned_varint(len(data)) + data for tag, data in present)


def length(count: int, *, flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if flexible else struct.pack(">i", count)


def test_real_values() -> None:
    states = {name: read_transaction_value(bytes.fromhex(data)) for name, data in GOLDEN.items()}
    compare("transaction_states.txt", (f"{name}: {state}" for name, state in states.items()))
    for name in GOLDEN.keys() - {"3.5.2 committed"}:  # an empty array where null would do
        assert write_value(states[name]).hex() == GOLDEN[name]  # so the writer of these tests writes as Kafka does


@given(states(), st.integers(0, 3))
def test_values_round_trip(state: TransactionState, later_tags: int) -> None:
    data = write_value(state, later_tags=later_tags)
    assert read_transaction_value(data) == state
    assert read_transaction_value(memoryview(bytearray(data))) == state


@given(TEXT)
def test_keys_round_trip(transactional_id: str) -> None:
    assert read_transaction_key(write_key(transactional_id)) == transactional_id


V0 = bytes.fromhex("0000000000000000000000000000afc801")
V1 = bytes.fromhex("0001000000000000000000000000afc801")
TIMES = bytes(16)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends early"),
        (b"\0\2" + bytes(40), "has version 2"),
        (b"\xff\xff" + bytes(40), "has version -1"),
        (V0[:-1] + b"\x08", "status 8 is not known"),
        (V0[:-1] + b"\xff", "status -1 is not known"),
        (V0 + b"\x7f\xff\xff\xff" + TIMES, "array of 2147483647 items does not fit"),
        (V0 + bytes.fromhex("00000004") + TIMES, "array of 4 items does not fit"),  # in 16 bytes; an item has 6
        (V0 + bytes.fromhex("00000001 0001 61 7fffffff") + TIMES, "array of 2147483647 items does not fit"),
        (V0 + bytes.fromhex("00000001 0001 61 ffffffff") + TIMES, "array that must be there is null"),
        (V0 + bytes.fromhex("00000001 ffff 00000000") + TIMES, "text that must be there is null"),
        (V0 + bytes.fromhex("00000001 0001 ff 00000000") + TIMES, "not UTF-8"),
        (V0 + bytes(4) + TIMES + b"!", "1 bytes are left over"),
        (V1 + b"\xff\xff\xff\xff\x0f" + TIMES, "array of 4294967294 items does not fit"),
        (V1 + b"\xff\xff\xff\xff\xff\xff" + TIMES, "varint is longer than 32 bits"),
        (V1 + b"\xff\xff\xff\xff\x10" + TIMES, "varint is longer than 32 bits"),
        (V1 + b"\0" + TIMES + b"\x01\x00\x04abcd", "tagged field of 8 bytes has 4"),
        (V1 + b"\0" + TIMES + b"\xff\xff\xff\xff\x0f", "ends early"),
    ],
)
def test_decode_errors_have_a_reason(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        read_transaction_value(data)


@pytest.mark.parametrize(
    ("key", "partitions", "partition"),
    [
        ("my-group", 50, 12),  # this and the next by Java itself, on a real cluster
        ("my-unique-static-tid", 50, 33),
        ("", 50, 0),
        ("polygenelubricants", 50, 0),  # hashes to Integer.MIN_VALUE, whose Math.abs is negative
        ("golden", 50, 43),  # the captures above lay there
        ("java-client", 50, 20),
        ("\N{GRINNING FACE}", 1000, 899),  # two UTF-16 code units: 31 * 0xD83D + 0xDE00 = 1772899
    ],
)
def test_coordinator_partition(key: str, partitions: int, partition: int) -> None:
    assert coordinator_partition(key, partitions) == partition


@given(st.text(), st.integers(1, 1000))
def test_coordinator_partition_is_in_range(key: str, partitions: int) -> None:
    assert 0 <= coordinator_partition(key, partitions) < partitions


def test_a_topic_without_partitions_is_rejected() -> None:
    with pytest.raises(UsageError):
        coordinator_partition("id", 0)


# Captured from __consumer_offsets of the lab's Kafka 4.3.1 on 2026-11-21: a classic group with one librdkafka member,
# and an offset committed outside a transaction, whose tagged field is the topic's id.
REAL_GROUP = (
    "00030008636f6e73756d657200000001000572616e6765002c72646b61666b612d32316262663833352d373466342d343932322d623830652d"
    "363835393461323063306433000001a1fee19b6000000001002c72646b61666b612d32316262663833352d373466342d343932322d62383065"
    "2d363835393461323063306433ffff000772646b61666b61000a2f3132372e302e302e31000493e00000271000000023000300000001000d62"
    "792d6c696272646b61666b610000000000000000ffffffff000000000021000000000001000d62792d6c696272646b61666b61000000010000"
    "000000000000"
)
REAL_COMMIT = "0004000000000000000bffffffff0853454352455400000001a1fee19c7d010010befb439dc2724e8c8ba2757fb39e8dd1"
# Serialized by Kafka 4.3.1's own message classes: a key of every CoordinatorRecordType with the group "group-é" or
# "groupid-é" (and "memberid-é", "topic-é" 77, a regular expression), and values of version 0 to 4.
JAVA_KEYS = {
    "LEGACY_OFFSET_COMMIT": "0000000867726f75702dc3a90008746f7069632dc3a90000004d",
    "OFFSET_COMMIT": "0001000867726f75702dc3a90008746f7069632dc3a90000004d",
    "GROUP_METADATA": "0002000867726f75702dc3a9",
    "CONSUMER_GROUP_METADATA": "0003000a67726f757069642dc3a9",
    "CONSUMER_GROUP_PARTITION_METADATA": "0004000a67726f757069642dc3a9",
    "CONSUMER_GROUP_MEMBER_METADATA": "0005000a67726f757069642dc3a9000b6d656d62657269642dc3a9",
    "CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA": "0006000a67726f757069642dc3a9",
    "CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER": "0007000a67726f757069642dc3a9000b6d656d62657269642dc3a9",
    "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT": "0008000a67726f757069642dc3a9000b6d656d62657269642dc3a9",
    "SHARE_GROUP_MEMBER_METADATA": "000a000a67726f757069642dc3a9000b6d656d62657269642dc3a9",
    "SHARE_GROUP_METADATA": "000b000a67726f757069642dc3a9",
    "SHARE_GROUP_TARGET_ASSIGNMENT_METADATA": "000c000a67726f757069642dc3a9",
    "SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER": "000d000a67726f757069642dc3a9000b6d656d62657269642dc3a9",
    "SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT": "000e000a67726f757069642dc3a9000b6d656d62657269642dc3a9",
    "SHARE_GROUP_STATE_PARTITION_METADATA": "000f000a67726f757069642dc3a9",
    "CONSUMER_GROUP_REGULAR_EXPRESSION": "0010000a67726f757069642dc3a90014726567756c617265787072657373696f6e2dc3a9",
    "STREAMS_GROUP_METADATA": "0011000a67726f757069642dc3a9",
    "STREAMS_GROUP_MEMBER_METADATA": "0013000a67726f757069642dc3a9000b6d656d62657269642dc3a9",
    "STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA": "0014000a67726f757069642dc3a9",
    "STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER": "0015000a67726f757069642dc3a9000b6d656d62657269642dc3a9",
    "STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT": "0016000a67726f757069642dc3a9000b6d656d62657269642dc3a9",
    "STREAMS_GROUP_TOPOLOGY": "0017000a67726f757069642dc3a9",
}
JAVA_COMMITS = (
    "00000000001cbe991a140005776f726473000001a1fee19c45",
    "00010000001cbe991a140005776f726473000001a1fee19c45000001a1fee1bfcf",
    "00020000001cbe991a140005776f726473000001a1fee19c45",
    "00030000001cbe991a14000000090005776f726473000001a1fee19c45",
    "00040000001cbe991a140000000906776f726473000001a1fee19c4501001000000000000000010000000000000002",
)
JAVA_GROUPS = (
    "00000008636f6e73756d657200000005000572616e676500026d310000000200026d3100016300022f680000000a00000002010200000000"
    "00026d3200016300022f680000000a00000002010200000000",
    "00010008636f6e73756d657200000005000572616e676500026d310000000200026d3100016300022f68000000140000000a000000020102"
    "0000000000026d3200016300022f68000000140000000a00000002010200000000",
    "00020008636f6e73756d657200000005000572616e676500026d31000001a1fee19c450000000200026d3100016300022f68000000140000"
    "000a0000000201020000000000026d3200016300022f68000000140000000a00000002010200000000",
    "00030008636f6e73756d657200000005000572616e676500026d31000001a1fee19c450000000200026d3100067374617469630001630002"
    "2f68000000140000000a0000000201020000000000026d32ffff00016300022f68000000140000000a00000002010200000000",
    "000409636f6e73756d6572000000050672616e6765036d31000001a1fee19c4503036d31077374617469630263032f68000000140000000a"
    "0301020100036d32000263032f68000000140000000a030102010000",
)


LATER_TAG = "010903616263"  # one tagged field, of a newer Kafka


COMMITS = {
    "of no transaction": REAL_COMMIT,
    **{f"version {version}": data for version, data in enumerate(JAVA_COMMITS)},
    "version 1, without times": "0001 0000000000000007 0000 ffffffffffffffff ffffffffffffffff",
    "version 3, without a leader epoch": "0003 0000000000000007 ffffffff ffff 0000000000000000",
    "version 4, of a newer Kafka": f"0004 0000000000000007 00000000 00 ffffffffffffffff {LATER_TAG}",
}
GROUPS = {
    "with a member of librdkafka": REAL_GROUP,
    **{f"version {version}": data for version, data in enumerate(JAVA_GROUPS)},
    "version 0, without members": "0000 0000 00000005 ffff ffff 00000000",
    "version 2, without members": "0002 0000 00000005 ffff ffff ffffffffffffffff 00000000",
    # the member: its id, no instance, client and host without a name, two times, null for what it subscribes to
    "version 4, of a newer Kafka":
    f"0004 01 00000005 00 00 ffffffffffffffff 02 026d 00 01 01 00000000 00000000 00 00 {LATER_TAG} {LATER_TAG}",
}  # fmt: skip


def test_keys_and_values_of_groups() -> None:
    """As brokers, and Kafka's own classes, wrote them; and what they may lack."""
    lines = [f"{name}: {read_group_key(bytes.fromhex(data))}" for name, data in JAVA_KEYS.items()]
    values = {read_offset_commit: COMMITS, read_group_metadata: GROUPS}
    for read, texts in values.items():
        lines += [f"{name}: {read(memoryview(bytearray.fromhex(data)))}" for name, data in texts.items()]
    compare("group_records.txt", lines)


def test_keys_of_other_versions() -> None:
    """Those of Kafka 3.9 to 4.2, which 4.3.1 does not write any more, and those of a newer Kafka."""
    for version, kind in ((9, "share_group_partition_metadata"), (18, "streams_group_partition_metadata")):
        key = struct.pack(">hh", version, 1) + b"g"
        assert read_group_key(key) == GroupKey(kind=kind, group_id="g")
    for version in (24, 2**15 - 1, -1):
        assert read_group_key(struct.pack(">h", version) + b"\0\1g") is None
        assert read_transaction_key(struct.pack(">h", version) + b"\0\1g") is None


def test_the_epoch_of_a_group() -> None:
    assert (
        {kind for kind in KINDS.values() if kind.endswith("s_group_metadata")} < GROUP_EPOCH_KINDS < {*KINDS.values()}
    )
    assert read_group_epoch(bytes.fromhex("00000000000301000828282828282828")) == 3


@pytest.mark.parametrize("read", [read_offset_commit, read_group_metadata, read_group_epoch])
@pytest.mark.parametrize("version", [-1, 5, 300])
def test_a_value_of_a_newer_version_is_named(read: Any, version: int) -> None:
    with pytest.raises(DecodeError, match=rf"has version {version}\. A newer Kafka wrote it") as caught:
        read(struct.pack(">h", version) + bytes(50))
    assert caught.value.position == 0
