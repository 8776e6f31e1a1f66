"""Names as brokers give them, and lookalikes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.formats.log_dir_files import FileName, FolderName, parse_file_name, parse_folder_name

ID = "0f81b0f6c1a8497fb47e1c9c9e2a6d1b"
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,100}", fullmatch=True).filter(lambda topic: topic not in {".", ".."})
PARTITIONS = st.integers(0, 2**31 - 1)


@given(TOPICS, PARTITIONS)
def test_folder_names_of_partitions(topic: str, partition: int) -> None:
    name = f"{topic}-{partition}"
    assert parse_folder_name(name) == FolderName(topic, partition)


@given(TOPICS, PARTITIONS, st.sampled_from(["delete", "future", "stray"]))
def test_folder_names_with_suffixes(topic: str, partition: int, suffix: str) -> None:
    name = f"{topic}-{partition}.{ID}-{suffix}"
    assert parse_folder_name(name) == FolderName(topic, partition, suffix)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__transaction_state-49", ("__transaction_state", 49)),
        ("orders--1", ("orders-", 1)),
        (f"orders-0.{ID}-delete-3", (f"orders-0.{ID}-delete", 3)),
        (f"orders-0.{ID}-delete-3.{ID}-delete", (f"orders-0.{ID}-delete", 3)),
        ("x" * 249 + "-2147483647", ("x" * 249, 2147483647)),
    ],
)
def test_ambiguous_folder_names(name: str, expected: tuple[str, int]) -> None:
    found = parse_folder_name(name)
    assert found is not None
    assert (found.topic, found.partition) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders",
        "-0",
        ".-0",
        "..-0",
        "orders-",
        "orders-x",
        "orders-01",
        "orders-+1",
        "orders-2147483648",
        "orders-\u0663",  # a digit to Python and to Java, but to no broker
        "orders-0\n",
        "or ders-0",
        "x" * 250 + "-0",
        f"orders.{ID}-delete",
        "orders-0-delete",
        "orders-0.-delete",
        f"orders-0.{ID}-gone",
        "remote-log-index-cache",
        "meta.properties",
    ],
)
def test_other_folder_names(name: str) -> None:
    assert parse_folder_name(name) is None


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from(["log", "index", "timeindex", "txnindex", "snapshot"]),
    st.sampled_from([None, "deleted", "cleaned", "swap"]),
)
def test_file_names_of_a_log(offset: int, kind: str, suffix: str | None) -> None:
    name = f"{offset:020}.{kind}" + (f".{suffix}" if suffix else "")
    assert parse_file_name(name) == FileName(offset, kind, suffix)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "server.log",
        "0.log",
        "99999999999999999999.log",
        "00000000000000000000",
        "00000000000000000000.log ",
        "00000000000000000000.log.tmp",
        "00000000000000000000.log.deleted.deleted",
        "00000000000000000000-0000000000.checkpoint",
        "12_Xb0A9Z3hQ6m0m0m0m0m0mA.index",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "\u0660" * 20 + ".log",
    ],
)
def test_other_file_names(name: str) -> None:
    assert parse_file_name(name) is None


@given(st.text(max_size=300))
def test_arbitrary_names_are_parsed_or_null(name: str) -> None:
    assert parse_folder_name(name) is None or "-" in name
    assert parse_file_name(name) is None or "." in name


def test_names_in_remote_storage_have_the_id_of_the_topic_and_of_the_copy() -> None:
    remote = "Ab_-Ab_-Ab_-Ab_-Ab_-Ab"
    assert parse_folder_name(f"my-orders-3-{remote}") == FolderName("my-orders", 3, topic_id=remote)
    assert parse_file_name(f"00000000000000000020-{remote}.txnindex") == FileName(20, "txnindex", is_remote=True)
    assert parse_file_name(f"00000000000000000020-{remote}.leader_epoch_checkpoint") is None
    assert parse_folder_name(f"my-orders-3-{remote}x") is None
