"""Checkpoint and properties files: as real brokers wrote them, and made up."""

import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus.file_calls import archives, unpacked
from tests.stored import compare
from toolkit import LogDir
from toolkit.errors import UsageError
from toolkit.formats.log_dir_files import CHECKPOINT_NAMES, checkpoint_rows
from toolkit.schema import CHECKPOINTS
from toolkit.schema.log import CheckpointEntry

OFFSETS = [name for name in CHECKPOINT_NAMES if name.endswith("-offset-checkpoint")]
META = "node.id=1\nversion=1\ncluster.id=Gx7QMUXwShSzN6qKUss-Eg\n"


def checked(rows: list[CheckpointEntry], *, lines: int | None = None) -> list[CheckpointEntry]:
    """The rows, if the table takes them and an error has its line."""
    assert CHECKPOINTS.arrow(rows).num_rows == len(rows)
    for row in rows:
        error = row.error
        assert error is None or re.fullmatch(r"(?s)MALFORMED: (line \d+ |[a-z._]+ is missing).*\.", error)
        assert error is None or row.position is None or f"line {row.position} " in error
        assert row.offset is None or error is None
        assert lines is None or row.position is None or 1 <= row.position <= max(lines, 2)
    return rows


def values(rows: list[CheckpointEntry]) -> dict[str | None, str | None]:
    return {row.key: row.value for row in rows}


def errors(rows: list[CheckpointEntry]) -> list[str]:
    return [row.error for row in rows if row.error]


# Real files


@pytest.mark.parametrize("version", ["2.8.2", "3.5.2", "3.9.2", "4.3.1"])
def test_every_file_of_a_real_broker_is_read_completely(version: str) -> None:
    """What is in them is stored in the corpus."""
    rows = LogDir(unpacked(archives()[f"{version}-everyday-files"])).checkpoints()
    assert rows["error"].isna().all()
    assert {*rows["name"]} >= {OFFSETS[-1], "leader-epoch-checkpoint", "meta.properties"}


# Made up


@pytest.mark.parametrize("name", CHECKPOINT_NAMES)
@given(text=st.text(st.characters(), max_size=100))
def test_arbitrary_text_gives_rows(name: str, text: str) -> None:
    checked(checkpoint_rows(name, text))


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True),
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**63 - 1),
        ),
        max_size=5,
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_entries_round_trip(entries: list[tuple[str, int, int]], newline: str) -> None:
    lines = ["0", str(len(entries)), *(f"{topic} {partition} {offset}" for topic, partition, offset in entries)]
    rows = checked(checkpoint_rows(OFFSETS[0], "".join(line + newline for line in lines)))
    assert [(row.topic, row.partition, row.offset) for row in rows] == entries
    assert not errors(rows)


MALFORMED: Sequence[tuple[str, bytes | str]] = [
    ("replication-offset-checkpoint", ""),
    ("replication-offset-checkpoint", "0\n0\n"),
    ("replication-offset-checkpoint", "1\n1\na 0 5\n"),
    ("replication-offset-checkpoint", "0\n2\na 0 5\n"),
    ("replication-offset-checkpoint", "0\n"),
    ("replication-offset-checkpoint", "0"),
    ("replication-offset-checkpoint", "0\n2\na 0 5\na 1\n"),
    ("replication-offset-checkpoint", "0\n2\na 0 -1\na 1 6\n"),
    ("replication-offset-checkpoint", "0\n1\na 0 9223372036854775808\n"),
    ("replication-offset-checkpoint", "0\n1\na 2147483648 5\n"),
    ("replication-offset-checkpoint", "0\n1\na 0 \u0665\n"),
    ("replication-offset-checkpoint", "0\n1\na:b 0 5\n"),
    ("replication-offset-checkpoint", "0\n2\na 0 5\na 1 61"),
    ("replication-offset-checkpoint", "0\n2\na 0 5\n\n"),
    ("replication-offset-checkpoint", "0\n1\n" + "x" * 100 + "\n"),
    ("replication-offset-checkpoint", b"0\n2\n\xff 0 5\na 0 6\n"),
    ("leader-epoch-checkpoint", "0\n2\n0 0\n3 x\n"),
    ("partition.metadata", "version: 0\n"),
    ("partition.metadata", "version: 1\ntopic_id: 32a3DfkDSKGZcm4QdW7kyg"),
    ("partition.metadata", "version: 0\ntopic_id: 32a3DfkDSKGZcm4QdW7ky"),
    ("partition.metadata", "version: 0\ntopic_id"),
    ("meta.properties", ""),
    ("meta.properties", "#\n#now\n\n" + META),
    ("meta.properties", META + "odd\\u00e9\\:key : odd\\=value\n"),
    ("meta.properties", "version=1\ncluster.id=x\n"),
    ("meta.properties", "version=2\nnode.id=1\ncluster.id=x\n"),
    ("meta.properties", "version=0\nbroker.id=one\ncluster.id=x\n"),
    ("meta.properties", "version=0\nbroker.id=1\ncluster.id=\\u12\n"),
    ("meta.properties", "version=0\nbroker.id=1\\\n\ncluster.id=x\n"),
    ("meta.properties", "version=0\nbroker.id=1\ncluster.id=x"),
    (".kafka_cleanshutdown", ""),
    (".kafka_cleanshutdown", '{"version":0,"brokerEpoch":12}'),
    (".kafka_cleanshutdown", '{"version":0,"brokerEpoch":null}'),
    (".kafka_cleanshutdown", '{"version":1}'),
    (".kafka_cleanshutdown", "[1]"),
    (".kafka_cleanshutdown", "[" * 100_000),
    (".kafka_cleanshutdown", '{"version":0,"\\ud800":"\\ud800"}'),
]


def test_malformed_files() -> None:
    """What is read of each, and why the rest is not."""
    lines = list[str]()
    for name, text in MALFORMED:
        rows = checked(checkpoint_rows(name, text, topic=None))
        lines += [f"{name} {text[:200]!r}", *(f"  {row.key} {row.value} {row.offset} {row.error}" for row in rows)]
    compare("malformed_checkpoints.txt", (line.encode("ascii", "backslashreplace").decode() for line in lines))


def test_a_clean_shutdown_file_with_deeply_nested_json() -> None:
    text = json.dumps({"version": 0, "nested": []}).replace("[]", "[" * 5000 + "]" * 5000)
    checked(checkpoint_rows(".kafka_cleanshutdown", text))


def test_unknown_file_names_are_rejected() -> None:
    with pytest.raises(UsageError, match=r"'quorum-state' is no checkpoint file known here\. Known are "):
        checkpoint_rows("quorum-state", "")
