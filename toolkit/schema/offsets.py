"""Tables about single offsets: who can read one, which of a range are missing, how far a group is behind."""

from __future__ import annotations

from toolkit.schema.table import BOOL, INT16, INT32, INT64, STRING, TIME, Column, Table

_TOPIC = Column("topic", STRING, "Topic name.", nullable=False)
_PARTITION = Column("partition", INT32, "Partition number.", nullable=False)
_LOG_START = Column("log_start_offset", INT64, "First offset still in the log.")
_LSO = Column("last_stable_offset", INT64, "LSO of the partition.")
_HIGH_WATERMARK = Column("high_watermark", INT64, "High watermark of the partition.")
_LOG_END = Column("log_end_offset", INT64, "Log end offset of the partition.")
_BROKER = Column("broker_id", INT32, "Leader of the partition; of files, whose log directory was read.")
_OBSERVED = Column("observed_at", TIME, "When its offsets were read; of files, when the newest was written.")
_ERROR = Column("error", STRING, "What could not be read, as NAME: sentence; null where the row is whole.")

OFFSET_VISIBILITY = Table(
    "offset_visibility",
    "an offset: what it holds, and which consumers receive it",
    (
        _TOPIC,
        _PARTITION,
        Column("offset", INT64, "The offset.", nullable=False),
        Column("status", STRING, "One of analysis.log.offset_status.STATUSES; null where that is not known."),
        Column("read_committed", BOOL, "Whether a read_committed consumer receives it now; null where not known."),
        Column("read_uncommitted", BOOL, "Whether a read_uncommitted consumer receives it now; null as above."),
        Column("reason", STRING, "Why, as a sentence.", nullable=False),
        Column("base_offset", INT64, "First offset of its batch; null where no batch holds it."),
        Column("last_offset", INT64, "Last offset of its batch."),
        Column("timestamp", TIME, "Newest record time of its batch."),
        Column("timestamp_type", STRING, "CreateTime (the producer's clock) or LogAppendTime (the broker's)."),
        Column("producer_id", INT64, "Producer id (PID)."),
        Column("producer_epoch", INT16, "Producer epoch of its batch."),
        Column("transactional_id", STRING, "Id that owns the producer id; null where the coordinators know none."),
        Column("outcome", STRING, "commit, abort or open; null outside transactions, and where that is not known."),
        Column(
            "first_offset",
            INT64,
            "First offset of its transaction, which may be below the log start; null where that is not known.",
        ),
        Column("marker_offset", INT64, "Offset of the marker of its transaction; null where that was not read."),
        Column("marker_time", TIME, "Time of that marker, by the partition leader's clock."),
        Column(
            "visible_at",
            TIME,
            "When the LSO passed it: time of the last marker that it waited for, among those read; of a record that "
            "waited for none its time under LogAppendTime, else null.",
        ),
        Column("holder_producer_id", INT64, "Where it lies beyond the LSO: producer of the lowest open transaction."),
        Column("holder_first_offset", INT64, "First offset of that transaction."),
        _LOG_START,
        _LSO,
        _HIGH_WATERMARK,
        _LOG_END,
        _BROKER,
        _OBSERVED,
        _ERROR,
    ),
    key=("topic", "partition", "offset"),
    sort=("topic", "partition", "offset"),
)

MISSING_OFFSETS = Table(
    "missing_offsets",
    "a range of offsets that a consumer does not receive, and why",
    (
        _TOPIC,
        _PARTITION,
        Column("first_offset", INT64, "First offset of the range.", nullable=False),
        Column("last_offset", INT64, "Last offset of the range.", nullable=False),
        Column("offsets", INT64, "How many those are.", unit="offsets", nullable=False),
        Column(
            "status",
            STRING,
            "One of analysis.log.offset_status.STATUSES, or beyond_lso: a record that waits for the LSO; null where "
            "that is not known.",
        ),
        Column("isolation_level", STRING, "Of the consumer: read_committed or read_uncommitted.", nullable=False),
        Column("reason", STRING, "Why they are missing, as a sentence.", nullable=False),
        _BROKER,
        _OBSERVED,
        _ERROR,
    ),
    key=("topic", "partition", "first_offset"),
    sort=("topic", "partition", "first_offset"),
)

GROUP_LAG = Table(
    "group_lag",
    "how far a group is behind on a partition, and what that is made of",
    (
        Column("group_id", STRING, "Group id.", nullable=False),
        Column("topic", STRING, "Topic name; null on an error row for topics that may be hidden."),
        Column("partition", INT32, "Partition number; null on an error row for topics that may be hidden."),
        Column(
            "committed_offset",
            INT64,
            "Committed offset of the group; start offset of a share group; null where it has none.",
        ),
        _LSO,
        _HIGH_WATERMARK,
        Column(
            "lag",
            INT64,
            "Offsets from the committed one to the high watermark; of share groups as the broker counts them.",
            unit="offsets",
        ),
        Column(
            "client_lag",
            INT64,
            "Lag as a read_committed client measures it from there: offsets to the LSO; null of share groups.",
            unit="offsets",
        ),
        Column("behind", INT64, "Records below the LSO: the group can read them now.", unit="records"),
        Column("held", INT64, "Records from the LSO on: visible only once it moves.", unit="records"),
        Column(
            "markers",
            INT64,
            "The rest, never consumed: markers, aborted records, what compaction or retention took; null if the log "
            "was not read, and then they count as behind or held.",
            unit="offsets",
        ),
        Column("isolation_level", STRING, "Share groups: share.isolation.level; null where it may not be read."),
        Column("reason", STRING, "What the lag is made of, as a sentence."),
        _BROKER,
        _OBSERVED,
        _ERROR,
    ),
    key=("group_id", "topic", "partition"),
    sort=("group_id", "topic", "partition"),
)
