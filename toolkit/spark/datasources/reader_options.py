"""Options of the data sources, parsed and checked.

Topics and offsets are named as in Spark's own Kafka source. Errors of flags and numbers never contain a value: it could
be a secret. The client configuration is among the options, with credentials that Spark must not show. Where Spark shows
reader options, tested on 4.0 and 4.3 with a password as an option, at log level INFO:

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

import ast
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit.config import ClientConfig
from toolkit.config.properties import SECRET_KEY
from toolkit.errors import UsageError
from toolkit.formats.log_dir_files import log_path, parse_folder_name
from toolkit.formats.object_store import ObjectPath
from toolkit.schema.coerce import OffsetSpec
from toolkit.schema.durations import duration_s
from toolkit.schema.table import TopicPartition
from toolkit.sources.offset_queries import NAMED
from toolkit.sources.source import TableArguments, requested_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Options = Mapping[str, str]  # Spark's own mapping is case-insensitive

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
"""Spark's modes: keep rows with `error`, drop them, or fail the query."""
WORDS = {**{name: name for name in NAMED}, "earliest": "log_start", "latest": "high_watermark"}
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//[^/]*)?(/.*)?")


def refuse_unknown(options: Options, known: Collection[str], *, source: str, prefix: str | None = None) -> None:
    """Raise UsageError for the first unknown option; it lists the known ones.

    `prefix`: prefix of client options, which are not checked here.
    """
    names = {name.lower() for name in known}
    for name in options:
        if name.lower() not in names and not (prefix and name.lower().startswith(prefix)):
            clients = f", and {prefix}* for the client" if prefix else ""
            raise UsageError(f"{source} has no option {name!r}.", do=f"It has {', '.join(sorted(known))}{clients}.")


def choice(options: Options, name: str, choices: Collection[str], *, default: str) -> str:
    """One of some words, in any case. Raises UsageError if it is another word."""
    by_key = {word.lower(): word for word in choices}
    value = options.get(name, default).strip().lower()
    if value not in by_key:
        raise UsageError(f"The option {name} has an invalid value.", do=f"Use one of {', '.join(choices)}.")
    return by_key[value]


def flag(options: Options, name: str, *, default: bool = False) -> bool:
    """``true`` or ``false``."""
    return choice(options, name, ("true", "false"), default=str(default)) == "true"


def whole_number(options: Options, name: str, *, lowest: int = 0) -> int | None:
    """A whole number; null if not set. Raises UsageError if it is not a whole number, or less than `lowest`."""
    value = options.get(name)
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = lowest - 1
    if number < lowest:
        raise UsageError(f"The option {name} is not a whole number of at least {lowest}.", do="Correct it.")
    return number


def seconds(options: Options, name: str, *, default: float, lowest: float = 0.0) -> float:
    """A duration in seconds: ``30``, ``10s``, ``15m``, or as Spark writes intervals, ``1 hour 30 minutes``.

    Raises UsageError if it is not a duration, or shorter than `lowest`.
    """
    value = options.get(name)
    if value is None:
        return default
    try:
        total = duration_s(value)
    except ValueError:
        raise UsageError(f"The option {name} is not a duration.", do="Use 30s, 15m or 2h.") from None
    if total < lowest:
        raise UsageError(f"The option {name} is too short.", do=f"Use {lowest:g}s or longer.")
    return total


def _milliseconds(options: Options, name: str) -> int | None:
    """A duration as in `seconds`, but in milliseconds; null if not set."""
    return None if options.get(name) is None else round(seconds(options, name, default=0) * 1000)


def local_path(path: str) -> str:
    """A path without its scheme: ``file:/data``, ``file:///data``, ``dbfs:/Volumes/...``; or the URI of an object.

    Raises UsageError for a scheme that is not read (``hdfs://``), or a URI with credentials.
    """
    if isinstance(stored := log_path(path), ObjectPath):
        return str(stored)
    found = SCHEME.fullmatch(path)
    if not found or not (found[2] or found[3]):
        return path
    scheme, host, rest = found[1].lower(), (found[2] or "//")[2:], found[3] or "/"
    if scheme == "file" and host in {"", "localhost"}:
        return rest
    if scheme == "dbfs" and not host:
        return rest if rest.startswith("/Volumes/") else f"/dbfs{rest}"
    raise UsageError(
        f"{path} is not a path that can be read.",
        means="Executors read local files, and objects of s3://, gs:// and abfss://.",
        do="Use the path of a mounted volume, such as /Volumes/catalog/schema/volume/logs, or copy the files there.",
    )


def names(name: str, text: str) -> list[str]:
    """Names separated by commas, or in a list as JSON writes it, or as Spark does an option that is a Python list."""
    text = text.strip()
    found: Any = text.split(",")
    if text.startswith("["):
        found = next((read for parse in (json.loads, ast.literal_eval) if (read := _parsed(parse, text))), None)
    found = [str(each).strip() for each in found or ()]
    if not all(found) or not found:
        raise UsageError(f"The option {name} is not a list: {text!r}.", do="Separate names by commas, or use JSON.")
    return list(found)


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except (ValueError, SyntaxError):
        return None


def name_list(options: Options, name: str) -> list[str] | None:
    """Names as in `names`; null if not set."""
    text = options.get(name)
    return None if text is None else names(name, text)


def _partitions(options: Options, name: str) -> Sequence[int] | Sequence[TopicPartition] | None:
    """Partition numbers, or topics and numbers as in folder names: ``orders-0``."""
    values = name_list(options, name)
    if values is None:
        return None
    if all(each.isdecimal() for each in values):
        return [int(each) for each in values]
    folders = [folder for each in values if (folder := parse_folder_name(each))]
    found = [TopicPartition(each.topic, each.partition) for each in folders]
    if len(found) < len(values):
        raise UsageError(f"The option {name} is invalid: {', '.join(values)}.", do="Use 0, 1 or orders-0, orders-1.")
    return found


def _offset_spec(options: Options, name: str) -> OffsetSpec | None:
    """A number, a name, or the text of a time; null if not set."""
    if (text := options.get(name)) is None:
        return None
    text = text.strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else WORDS.get(text.lower(), text)


def _only(options: Options, name: str) -> list[int] | None:
    number = whole_number(options, name)
    return None if number is None else [number]


class Argument(NamedTuple):
    """The option that sets one of `TableArguments`, and what parses it."""

    option: str
    parse: Callable[[Options, str], Any]


ARGUMENTS: Mapping[str, Argument] = {
    "topics": Argument("subscribe", name_list),
    "partitions": Argument("partitions", _partitions),
    "start": Argument("startingOffsets", _offset_spec),
    "stop": Argument("endingOffsets", _offset_spec),
    "producer_id": Argument("producerId", whole_number),
    "producer_ids": Argument("producerId", _only),
    "transactional_ids": Argument("transactionalIds", name_list),
    "groups": Argument("groups", name_list),
    "crc": Argument("crc", flag),
    "max_transaction_timeout_ms": Argument("maxTransactionTimeout", _milliseconds),
    "min_held_ms": Argument("minHeld", _milliseconds),
}


def arguments_of(takes: Collection[str]) -> list[str]:
    """Those of the arguments that a table takes that options set."""
    return [each for each in ARGUMENTS if each in takes]


def table_arguments(options: Options, takes: Collection[str]) -> dict[str, Any]:
    """The arguments that a table takes, as `TableArguments.of` takes them."""
    return {name: ARGUMENTS[name].parse(options, ARGUMENTS[name].option) for name in arguments_of(takes)}


PREFIX = "kafka."
CONNECTION = ("commandConfig", "timeout")
"""Options of every source that connects, besides client keys with `PREFIX`."""
SETTING = "spark.sql.redaction.string.regex"
KEY = rf"kafka\.[\w.-]*(?:{SECRET_KEY.pattern.replace('$', '')})[\w.-]*"
IN_REQUEST = rf'key: "{KEY}"\s+value: "(?:[^"\\]|\\.)*+"?'
IN_TEXT = rf"""{KEY}[\\'"`]*\s*(?:->|=|\\*['"]).*"""  # in a statement or its plan: to the end, for any value
SECRETS = f"(?is){IN_REQUEST}|{IN_TEXT}"


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


def client_config(options: Options, *, registered: ClientConfig | None, hides_secrets: bool) -> ClientConfig:
    """The client configuration from the options.

    Set ``kafka.bootstrap.servers`` and any other client key with the prefix ``kafka.``, as for Spark's own Kafka
    source; or ``commandConfig``, the path of a ``client.properties`` on Spark's driver, with no other ``kafka.`` option
    than the servers. The default is the configuration of ``toolkit.spark.register(spark, config=...)``.

    A secret is safest in the file or in ``register``: then no text of Spark contains it. Classic Spark never shows a
    secret that is an option. Spark Connect has it in the text of the request, where `toolkit.spark.register` makes
    Spark redact it. If Spark does not allow that, or the source was registered in another way, the option is refused.

    Raises UsageError if the options name no cluster or contain a secret that Spark would show, or as `ClientConfig`
    does. The text contains keys and files, never a secret.
    `registered`: the default client configuration.
    `hides_secrets`: whether Spark is configured to redact secrets in options.
    """
    if not hides_secrets:
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
    if not keys and registered is not None:
        return registered
    if "bootstrap.servers" not in keys:
        raise UsageError(
            "The options name no cluster.",
            do="Set kafka.bootstrap.servers or commandConfig; or call register(spark, config=...) once.",
        )
    return ClientConfig(keys)


LIVE_ARGUMENTS = ("topics", "partitions", "start", "stop", "crc", "producer_id")
OF_BATCHES = (*(ARGUMENTS[each].option for each in LIVE_ARGUMENTS), "maxRecordsPerPartition", "mode")
MAX_OFFSETS = 1_000_000  # per task: from 70 MB, if every batch has one record, to some gigabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesOptions:
    """Options of `KafkaBatches`."""

    arguments: TableArguments  # the partitions, the offsets, the producer
    max_offsets: int  # maximum number of offsets per task
    mode: str  # what to do with rows with `error`, one of `MODES`
    timeout: float  # seconds, for connecting and for each round of requests


def batches_options(options: Options) -> BatchesOptions:
    """Parse and check the options. Raises UsageError for an unknown option, or an invalid value."""
    refuse_unknown(options, {*OF_BATCHES, *CONNECTION}, source="kafka_log_live", prefix=PREFIX)
    arguments = TableArguments.of(**table_arguments(options, LIVE_ARGUMENTS))
    if arguments.topics is None and arguments.partitions is None:
        raise UsageError("The options name neither topics nor partitions.", do="Set subscribe or partitions.")
    if arguments.partitions is not None:
        requested_partitions(arguments.topics, arguments.partitions)
    return BatchesOptions(
        arguments=arguments,
        max_offsets=whole_number(options, "maxRecordsPerPartition", lowest=1) or MAX_OFFSETS,
        mode=choice(options, "mode", MODES, default="PERMISSIVE"),
        timeout=seconds(options, "timeout", default=30.0, lowest=0.1),
    )
