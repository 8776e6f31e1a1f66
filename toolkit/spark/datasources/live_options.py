"""Options and schemas of ``kafka_log_live`` and ``kafka_txn_samples``, all checked before anything is read.

The client configuration is among them, with credentials that Spark must not show. Where Spark shows reader options,
tested on 4.0 and 4.3 with a password as an option, at log level INFO:

- Classic Spark never shows the options of a reader: not in plans, on the pages of its UI, in its REST responses, in
  event logs, errors, progress or checkpoints. The options of a statement (``CREATE VIEW ... USING ... OPTIONS``) are in
  the plan of that statement, except those that Spark recognises as passwords.
- Spark Connect shows them all. The text of every request and statement is on the pages Connect, Jobs, Stages and SQL,
  in their REST responses, and in the event log.

This cannot be prevented: Spark 4.0 quotes a statement that it cannot parse in its error. So put no secrets in SQL.
Spark redacts all other texts by ``spark.sql.redaction.string.regex``, which `hide_secrets` sets for the session.

A file (``commandConfig``) and ``register(spark, config=...)`` never appear in such a text. The latter is sent in the
pickled class of the data source, of which Connect shows eight bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from toolkit.analysis.diagnosis.case import DiagnoseOptions
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.analysis.history.sample_findings import LATE_PADDING_MS
from toolkit.config import ClientConfig
from toolkit.config.properties import SECRET_KEY
from toolkit.errors import UsageError
from toolkit.schema import RECORDED
from toolkit.sources.recording.sampler import SampleOptions
from toolkit.spark.arrow_types import struct_fields, struct_type
from toolkit.spark.datasources.reader_options import (
    MODES,
    OFFSETS,
    SELECTION,
    OffsetBounds,
    Options,
    PartitionSelection,
    choice,
    ending,
    flag,
    milliseconds,
    refuse_unknown,
    seconds,
    selection,
    starting,
    whole_number,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PREFIX = "kafka."
CONNECTION = ("commandConfig", "timeout")
"""Options of every source that connects, besides client keys with `PREFIX`."""
SETTING = "spark.sql.redaction.string.regex"
KEY = rf"kafka\.[\w.-]*(?:{SECRET_KEY.pattern.replace('$', '')})[\w.-]*"
IN_REQUEST = rf'key: "{KEY}"\s+value: "(?:[^"\\]|\\.)*+"?'
IN_TEXT = rf"""{KEY}[\\'"`]*\s*(?:->|=|\\*['"]).*"""  # in a statement or its plan: to the end, for any value
SECRETS = f"(?is){IN_REQUEST}|{IN_TEXT}"


class ConnectingSource:
    """Base of data sources that connect, with the configuration of their registration.

    Attributes
    ----------
    registered
        Default client configuration.
    hides_secrets
        Whether Spark is configured to redact secrets in options.
    """

    registered: ClassVar[ClientConfig | None] = None
    hides_secrets: ClassVar[bool] = False


def hide_secrets(spark: SparkSession) -> bool:
    """Make Spark redact the secrets of reader options in the texts of requests and statements.

    Existing redaction patterns are kept.

    Returns: whether the session allows this setting; some managed ones do not.
    """
    try:
        value = spark.conf.get(SETTING, "") or ""  # serverless raises CONFIG_NOT_AVAILABLE, even with a default
        if SECRETS not in value:
            spark.conf.set(SETTING, f"(?:{value})|{SECRETS}" if value else SECRETS)
    except Exception:  # noqa: BLE001 - each Spark raises its own error for a locked setting
        return False
    return True


def connecting(source: type[Any], *, config: ClientConfig | None, hides_secrets: bool) -> type[Any]:
    """A data source class with the configuration of its registration.

    `source`: a subclass of `ConnectingSource`.
    `config`, `hides_secrets`: see `ConnectingSource`.
    """
    # A class that is in no module is pickled by value, with its attributes.
    return type(source.__name__, (source,), {"registered": config, "hides_secrets": hides_secrets})


def client_config(options: Options, source: ConnectingSource) -> ClientConfig:
    """The client configuration from the options.

    Set ``kafka.bootstrap.servers`` and any other client key with the prefix ``kafka.``, as for Spark's own Kafka
    source; or ``commandConfig``, the path of a ``client.properties`` on Spark's driver, with no other ``kafka.`` option
    than the servers. The default is the configuration of ``toolkit.spark.register(spark, config=...)``.

    A secret is safest in the file or in ``register``: then no text of Spark contains it. Classic Spark never shows a
    secret that is an option. Spark Connect has it in the text of the request, where `toolkit.spark.register` makes
    Spark redact it. If Spark does not allow that, or the source was registered in another way, the option is refused.

    Raises UsageError if the options name no cluster or contain a secret that Spark would show, or as `ClientConfig`
    does. The text contains keys and files, never a secret.
    `options`: the options of the reader.
    `source`: the data source, with the configuration of its registration.
    """
    if not source.hides_secrets:
        for name in options:
            if name.lower().startswith(PREFIX) and SECRET_KEY.search(name.lower()):
                raise UsageError(
                    f"The option {name} is a secret, which Spark Connect would show on its pages.",
                    do="Call toolkit.spark.register(spark) first, which redacts it if Spark allows that; or call "
                    "register(spark, config=...); or set commandConfig to the path of a client.properties.",
                )
    by_key = {name.lower(): value for name, value in options.items()}
    keys = {key.removeprefix(PREFIX): value for key, value in by_key.items() if key.startswith(PREFIX)}
    path = options.get("commandConfig")
    if path is not None:
        servers = keys.pop("bootstrap.servers", None)
        if keys:
            raise UsageError(
                f"commandConfig and {PREFIX}{min(keys)} both configure the client.", do="Set everything in the file."
            )
        return ClientConfig.from_properties(path, bootstrap_servers=servers)
    if not keys and source.registered is not None:
        return source.registered
    if "bootstrap.servers" not in keys:
        raise UsageError(
            "The options name no cluster.",
            do="Set kafka.bootstrap.servers or commandConfig; or call register(spark, config=...) once.",
        )
    return ClientConfig(keys)


OF_BATCHES = ("crc", "maxRecordsPerPartition", "minPartitions", "mode", "producerId")
MAX_OFFSETS = 1_000_000  # per task: from 70 MB, if every batch has one record, to some gigabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesOptions:
    """Options of `KafkaBatches`."""

    selection: PartitionSelection  # partitions to read
    # start, stop: first offset, and the offset after the last one
    start: OffsetBounds
    stop: OffsetBounds
    max_offsets: int  # maximum number of offsets per task
    tasks: int  # approximate minimum number of tasks
    producer_id: int | None  # only batches of this producer
    crc: bool  # whether to verify every checksum
    mode: str  # what to do with rows with `error`, one of `reader_options.MODES`
    timeout: float  # seconds, for connecting and for each round of requests


def batches_options(options: Options) -> BatchesOptions:
    """Parse and check the options. Raises UsageError for an unknown option, or an invalid value."""
    refuse_unknown(options, {*OF_BATCHES, *CONNECTION, *SELECTION, *OFFSETS}, source="kafka_log_live", prefix=PREFIX)
    return BatchesOptions(
        selection=selection(options),
        start=starting(options),
        stop=ending(options),
        max_offsets=whole_number(options, "maxRecordsPerPartition", lowest=1) or MAX_OFFSETS,
        tasks=whole_number(options, "minPartitions", lowest=1) or 1,
        producer_id=whole_number(options, "producerId"),
        crc=flag(options, "crc"),
        mode=choice(options, "mode", MODES, default="PERMISSIVE"),
        timeout=seconds(options, "timeout", default=30.0, lowest=0.1),
    )


EVERYTHING = "everything"
RECORDED_TABLES = (EVERYTHING, *RECORDED)
"""Values of the option ``table``: all recorded tables together, or one by its name in ``schema.RECORDED``."""
OF_SAMPLES = ("interval", "latePadding", "logEvidence", "recheckAfter", "maxTransactionTimeout", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOptions:
    """Options of `KafkaTransactions`."""

    table: str  # ``everything``, or a name in ``schema.RECORDED``
    timeout: float  # seconds, for connecting and for each round of requests
    sample: SampleOptions  # how samples are taken; a batch waits `recheck_after` for a second one, a stream never does


def transactions_options(options: Options) -> TransactionsOptions:
    """Parse and check the options. Raises UsageError for an unknown option, or an invalid value."""
    refuse_unknown(options, {*OF_SAMPLES, *CONNECTION}, source="kafka_txn_samples", prefix=PREFIX)
    interval = seconds(options, "interval", default=10.0, lowest=0.1)
    diagnosis = DiagnoseOptions(
        recheck_after=seconds(options, "recheckAfter", default=5.0),
        max_transaction_timeout_ms=milliseconds(options, "maxTransactionTimeout", MAX_TRANSACTION_TIMEOUT_MS),
        log_evidence=flag(options, "logEvidence", default=True),
    )
    return TransactionsOptions(
        table=choice(options, "table", RECORDED_TABLES, default=EVERYTHING),
        timeout=seconds(options, "timeout", default=min(30.0, max(1.0, interval / 3)), lowest=0.1),
        sample=SampleOptions(
            interval_ms=round(interval * 1000),
            diagnosis=diagnosis,
            late_padding_ms=milliseconds(options, "latePadding", LATE_PADDING_MS),
        ),
    )


def recorded_schema(table: str) -> StructType:
    """Spark's schema of a recorded table.

    That of ``everything`` has the time of the sample, the name of the row's table, and a struct for each table, which
    is null in the rows of all other tables.
    """
    if table != EVERYTHING:
        return struct_type(RECORDED[table])
    return StructType(
        [
            StructField("sampled_at", TimestampType(), nullable=False),
            StructField("table", StringType(), nullable=False),
            *struct_fields(RECORDED.items()),
        ]
    )
