"""Symptoms: their wordings, causes, and what to do and not to do; which of them a text has, and what it names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from types import MappingProxyType
from typing import TypeVar

from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.table import TopicPartition

MAX_NAMED = 10
"""The first ids and groups of a text that are looked up: each costs a request to the cluster."""
MAX_PARTITIONS = 500
"""Likewise; a request has many of them."""

MAX_PRODUCER_ID = 2**63 - 1

T = TypeVar("T")


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(each, re.IGNORECASE) for each in patterns)


_ID = r"(?P<name>[^\s\"',;\[\](){}<>]{1,249})"
_TOPIC = r"(?P<topic>[A-Za-z0-9._-]{1,249})"
_PARTITION = r"(?P<partition>\d{1,9})(?!\w)"
_TOPIC_PARTITION = rf"{_TOPIC}-{_PARTITION}"

_TRANSACTIONAL_ID = _compiled(
    rf"\btransactional[._]?id[\"']?\s?[=:]\s?[\"'\[]?{_ID}",
    rf"\btransactional ?id '{_ID}'",
    rf"\bto send transaction markers for {_ID},",
    rf"\btransactional ?id {_ID} (?:with (?:producerId|state)|due to timeout)",
    rf"--transactional-id[ =]{_ID}",
)
_GROUP = _compiled(
    rf"\bgroup[._]?id[\"']?\s?[=:]\s?[\"'\[]?{_ID}",
    rf"\bgroup \"{_ID}\"",
    rf"get records for (?:compacted )?{_ID} ",
    rf"Got wrong record for {_ID} \S{{1,260}}(?: \d{{1,9}})? even after",
    rf"\bwith consumer group {_ID}",
    rf"--group[ =]{_ID}",
    rf"\[{_ID},[A-Za-z0-9._-]{{1,249}},\d{{1,9}}\]::OffsetAndMetadata\(",  # of the console consumer's formatter
)
_PRODUCER_ID = _compiled(
    r"\bproducer[._]?id[\"']?\s?[=: ]\s?(?P<name>\d{1,19})\b",
    r"\b(?:of|for) producer (?P<name>\d{1,19})\b",
    r"\bPID\{Id:(?P<name>\d{1,19}),",
)
_PARTITIONS = _compiled(
    rf"\btopic[- ]?partition:? {_TOPIC_PARTITION}",
    rf"\bits partition \({_TOPIC_PARTITION}\) as uncleanable",
    rf"\bpartition {_TOPIC_PARTITION}",
    rf"(?<![\w.-]){_TOPIC_PARTITION}@\d{{1,19}}\b",  # as this toolkit names a transaction
    rf"at offset \d{{1,19}} in {_TOPIC_PARTITION}",
    rf"record\(s\) for {_TOPIC_PARTITION}:",
    rf"get records for compacted \S{{1,249}} {_TOPIC_PARTITION} after",
    rf"get records for \S{{1,249}} {_TOPIC} {_PARTITION} \d{{1,19}} after",
    rf"get records for \S{{1,249}} {_TOPIC_PARTITION} \d{{1,19}} after",
    rf"Got wrong record for (?:\S{{1,249}} )?{_TOPIC_PARTITION} even after",
    rf"Got wrong record for \S{{1,249}} {_TOPIC} {_PARTITION} even after",
    rf"\"{_TOPIC}\" \[{_PARTITION}\]",
    rf"\[thrd:[^\]]{{1,300}}\]: {_TOPIC} \[{_PARTITION}\]: ",
    rf"(?:OffsetFetchResponse:|ProduceRequest for) {_TOPIC} \[{_PARTITION}\]",
    rf"TopicPartition\{{topic=\"?{_TOPIC}\"?,\s?partition=\"?{_PARTITION}",
    rf"--topic[ =]{_TOPIC} --partition[ =]{_PARTITION}",
    # a row of kafka-consumer-groups.sh without its header
    rf" {_TOPIC} {_PARTITION} (?:\d{{1,19}}|-) \d{{1,19}} (?:\d{{1,19}}|-) (?:\S{{1,300}} /\S{{1,100}} |- - -)",
    rf"\[\S{{1,249}},{_TOPIC},{_PARTITION}\]::OffsetAndMetadata\(",
    # metrics of a partition, if it is held: Prometheus and JMX
    rf"laststableoffsetlag\{{[^}}]{{0,200}}\btopic=\"{_TOPIC}\",\s?partition=\"{_PARTITION}\"[^}}]{{0,200}}\}} [1-9]",
    rf"name=LastStableOffsetLag,topic={_TOPIC},partition={_PARTITION}",
)
_PARTITION_LIST = re.compile(
    r"(?:(?:offset for partitions|cleared on the broker side:|reset policy for partitions:) [\[{]"
    r"|successfully committing offsets \{|endpoint for partitions (?:Hash)?Set\()"
    r"(?P<list>[^\])}]{1,4000})[\])}]"
)
_TABLES = (  # columns by which output of Kafka's tools is known, without the signs between their words
    {"topic", "partition", "currentoffset", "logendoffset", "lag"},
    {"topic", "partition", "producerid"},
    {"producerid", "producerepoch", "lastsequence", "lasttimestamp"},
    {"transactionalid", "producerid"},
)
_NUMBERS = {"partition": re.compile(r"[0-9]{1,9}"), "producerid": re.compile(r"[0-9]{1,19}")}
_RECORDS = ('"transactionalId"', "transaction_metadata::", "::TransactionMetadata(")
_NO_NAMES = {"null", "none", "nil"}
_OVER = {"CompleteCommit", "CompleteAbort", "Empty", "Dead"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedResources:
    """Resources to look up on the cluster, each kind in the order of the text."""

    transactional_ids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    producer_ids: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()  # how many more a text names, by kind: nobody looks them up

    def __bool__(self) -> bool:
        return any((self.transactional_ids, self.groups, self.topics, self.partitions, self.producer_ids))

    def with_more(
        self,
        *,
        transactional_ids: Iterable[str] = (),
        groups: Iterable[str] = (),
        topics: Iterable[str] = (),
        partitions: Iterable[int] = (),
    ) -> NamedResources:
        """Add the caller's resources, which come first; without `partitions` a topic means all of its own."""
        numbers, names = list(partitions), list(topics)
        pairs = [TopicPartition(topic, number) for topic in names for number in numbers]
        return replace(
            self,
            transactional_ids=_once([*transactional_ids, *self.transactional_ids]),
            groups=_once([*groups, *self.groups]),
            topics=_once([*([] if numbers else names), *self.topics]),
            partitions=_once([*pairs, *self.partitions]),
        )


def named_resources(text: str) -> NamedResources:
    """The resources that a text names: a pasted text, with its lines."""
    line, rows, records = searchable(text), list(_rows(text)), pasted_records(text)

    def column(name: str) -> list[str]:
        return [row[name] for row in rows if row.get(name, "-") != "-"]

    tabled = [
        TopicPartition(row["topic"], int(row["partition"])) for row in rows if {"topic", "partition"} <= row.keys()
    ]
    listed = [match for each in column("topicpartitions") for match in re.finditer(_TOPIC_PARTITION, each)]
    tabled += [TopicPartition(match["topic"], int(match["partition"])) for match in listed]
    tabled += [each for record in records for each in record.topic_partitions or ()]
    of_open = [record.transactional_id for record in records if record.transactional_id and not is_over(record)]
    transactional_ids = _once([*of_open, *_first(_TRANSACTIONAL_ID, line), *column("transactionalid")])
    groups = _once([*_first(_GROUP, line), *column("group")])
    partitions = _once([*_listed(line), *_pairs(line), *tabled])
    numbers = map(int, [*_first(_PRODUCER_ID, line), *column("producerid")])
    producer_ids = _once(each for each in numbers if each <= MAX_PRODUCER_ID)
    more = {
        "transactional ids": len(transactional_ids) - MAX_NAMED,
        "groups": len(groups) - MAX_NAMED,
        "partitions": len(partitions) - MAX_PARTITIONS,
        "producer ids": len(producer_ids) - MAX_NAMED,
    }
    return NamedResources(
        transactional_ids=transactional_ids[:MAX_NAMED],
        groups=groups[:MAX_NAMED],
        partitions=partitions[:MAX_PARTITIONS],
        producer_ids=producer_ids[:MAX_NAMED],
        left_out=tuple(f"{number:,} more {kind}" for kind, number in more.items() if number > 0),
    )


def is_over(record: TransactionLogRecord) -> bool:
    """Whether nothing is open by a transactional id after this record of it."""
    return record.tombstone or record.state in _OVER


def pasted_records(text: str) -> tuple[TransactionLogRecord, ...]:
    """The last record of each transactional id, in pasted output of kafka-dump-log.sh or of a console consumer.

    Those by which a transaction is open come first.
    """
    text = _both_ends(text)
    if not any(sign in text for sign in _RECORDS):
        return ()
    from toolkit.formats.dumps import read_dump  # imports numpy, which takes time

    dumps = read_dump(text.splitlines(keepends=True))
    records = (record for dump in dumps for record in dump.events if record.transactional_id)
    return tuple(sorted({record.transactional_id: record for record in records}.values(), key=is_over))


def _rows(text: str) -> Iterator[dict[str, str]]:
    """The rows of tables that Kafka's tools print, by column; a table of other columns has none."""
    columns: list[str] = []
    for line in text.splitlines():
        cells = [searchable(each) for each in line.split("\t")] if "\t" in line else searchable(line).split()
        names = [re.sub("[^a-z]", "", each.lower()) for each in cells]
        row = dict(zip(columns, cells, strict=False))
        if any(table <= {*names} for table in _TABLES):
            columns = names
        elif len(columns) - 1 <= len(cells) <= len(columns) and all(
            number.fullmatch(row.get(name, "0")) for name, number in _NUMBERS.items()
        ):
            yield row
        elif cells:
            columns = []


def _first(patterns: Iterable[re.Pattern[str]], text: str) -> tuple[str, ...]:
    found = [match for pattern in patterns for match in pattern.finditer(text)]
    names = [match["name"].rstrip(".:") for match in sorted(found, key=lambda match: match.start())]
    return _once([name for name in names if name and name.lower() not in _NO_NAMES and "***" not in name])


def _pairs(text: str) -> Iterator[TopicPartition]:
    for pattern in _PARTITIONS:
        for match in pattern.finditer(text):
            yield TopicPartition(match["topic"], int(match["partition"]))


def _listed(text: str) -> Iterator[TopicPartition]:
    for found in _PARTITION_LIST.finditer(text):
        for match in re.finditer(_TOPIC_PARTITION, found["list"]):
            yield TopicPartition(match["topic"], int(match["partition"]))


def _once(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


ANY_CLIENT = "any client"
"""For names and messages of the protocol, which several clients print."""
WORDS = "words"
"""For what people say."""


@dataclass(frozen=True, slots=True)
class Wording:
    """How a program words a symptom."""

    client: str  # the program that prints it: ``Java``, ``librdkafka``, ``Flink``, ``broker`` ...; or `ANY_CLIENT`
    pattern: re.Pattern[str]  # searched in the output of `searchable`. Every repetition in it is bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """A symptom in pasted text, and its explanation."""

    name: str  # lower-case words with hyphens; also the name of its docs page
    title: str  # what is wrong, in one line
    wordings: tuple[Wording, ...]  # how programs print it
    causes: tuple[str, ...]  # possible causes, the most frequent one first
    checks: tuple[str, ...]  # what to check to tell the causes apart
    safe: tuple[str, ...]  # what to do, and what is safe meanwhile
    never: tuple[str, ...]  # what makes it worse
    sources: tuple[str, ...]  # Kafka issues, KIPs and public threads that it is based on
    # names of more general symptoms that its wordings also match, and that it replaces
    instead_of: tuple[str, ...] = ()
    gives_way: bool = False  # whether it is omitted if there is another symptom: it is then a consequence, or temporary


def read_symptoms() -> dict[str, Symptom]:
    """The symptoms of ``symptoms.toml`` by name, in its order: specific wordings come before general ones."""
    text = (resources.files(__package__) / "symptoms.toml").read_text(encoding="utf-8")
    return {name: _symptom(name, **entry) for name, entry in tomllib.loads(text).items()}


_GOT = (  # what stands before the name of an error that a client, or a person, says it got
    r"(?:\berrors\.|\[Error \d{1,3}\] |\bErrorCode(?:\.|::)"
    r"|\b(?:throws?|threw|thrown|raise[sd]?|gets?|got|receive[sd]?|return(?:s|ed)?|(?:fail\w{0,3}|error\w{0,2}) with) "
    r"(?:an? |the )?)"
)


def _symptom(
    name: str,
    *,
    title: str,
    wordings: Mapping[str, Sequence[str]] = MappingProxyType({}),
    near: Sequence[tuple[str, str]] = (),
    gives_way: bool = False,
    **lists: Sequence[str],
) -> Symptom:
    found = [
        Wording(client, re.compile(each.replace("<error>", _GOT), re.IGNORECASE))
        for client, texts in wordings.items()
        for each in texts
    ]
    # of one sentence, or of a part of it: the next one has another subject
    between = r"(?:(?![.:;?!] )[^\u3002\uff1f\uff01\uff1b]){0,80}?"
    for one, other in near:
        either = f"(?:{one}){between}(?:{other})|(?:{other}){between}(?:{one})"
        found.append(Wording(WORDS, re.compile(either, re.IGNORECASE)))
    tuples = {key: tuple(texts) for key, texts in lists.items()}
    return Symptom(name=name, title=title, wordings=tuple(found), gives_way=gives_way, **tuples)


SYMPTOMS: Mapping[str, Symptom] = read_symptoms()
"""Symptom by name."""

MAX_CHARACTERS = 1_000_000
"""Of longer text, the first half and the last half of this are read: a log's first and newest errors."""

_OTHER_SUBJECT = re.compile(  # whose transactions hang, too
    r"\b(?:postgres\w{0,4}|mysql|innodb|mariadb|mongodb|oracle|sql ?server|sqlite|jdbc|hibernate|database|row lock"
    r"|deadlock|ethereum|solana|bitcoin|blockchain|wallet|mempool)\b",
    re.IGNORECASE,
)
_KAFKA = re.compile(r"\bkafka|read_committed|\bLSO\b|\b(?:consumer|topic|broker|offset)s?\b", re.IGNORECASE)
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)|[@-Z\\-_])")
_IN_JSON = re.compile(r"\\(?:[nrt]|u000[9ad])")  # a log line in JSON
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_SECRET = re.compile(
    r"(?P<key>(?:password|passwd|passphrase|secret|token|credential|api[_.-]?key|jaas\.config)\w{0,16}"
    r"[\"']?\s?(?:=>|[=:])\s?)(?:\"[^\"]{0,4096}\"?|'[^']{0,4096}'?|\S{1,4096})"
    r"|(?P<before>://[^\s/:@]{0,256}:|\b(?:Bearer|Basic)\s)[^\s/@]{1,4096}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RecognizedSymptom:
    """A symptom, and the clients whose wordings were found."""

    symptom: Symptom
    clients: tuple[str, ...]


def recognize(text: str) -> tuple[tuple[RecognizedSymptom, ...], NamedResources]:
    """The symptoms in a text, in the order of ``SYMPTOMS``, and the resources that it names.

    No symptom if the text is unknown. Omitted are general symptoms that a more specific one replaces
    (`Symptom.instead_of`), and those that give way to any other (`Symptom.gives_way`).
    `text`: an error, log lines, or the output of ``kafka-consumer-groups.sh``; of any length, see `searchable`.
    """
    text = _both_ends(text)
    line = searchable(text)
    found = []
    for symptom in SYMPTOMS.values():
        clients = list(dict.fromkeys(each.client for each in symptom.wordings if each.pattern.search(line)))
        is_other = clients == [WORDS] and _OTHER_SUBJECT.search(line) and not _KAFKA.search(line)
        if clients and not is_other:
            own = [each for each in clients if each not in (ANY_CLIENT, WORDS)]
            found.append(RecognizedSymptom(symptom, tuple(own or clients)))
    replaced = {name for each in found for name in each.symptom.instead_of}
    special = [each for each in found if each.symptom.name not in replaced]
    decisive = [each for each in special if not each.symptom.gives_way]
    return tuple(decisive or special), named_resources(text)


def searchable(text: str) -> str:
    """The text on one line with single spaces, without escape sequences and control characters; secrets are ``***``."""
    text = _both_ends(text)
    text = _CONTROL.sub("", _ESCAPE.sub("", text))
    text = _IN_JSON.sub(" ", text).replace('\\"', '"').replace("RD_KAFKA_RESP_ERR_", "")  # a prefix of librdkafka
    return _SECRET.sub(lambda found: f"{found['key'] or found['before']}***", " ".join(text.split()))


def _both_ends(text: str) -> str:
    """The first half and the last half of the characters that are read."""
    half = MAX_CHARACTERS // 2
    return text if len(text) <= MAX_CHARACTERS else f"{text[:half]}\n{text[-half:]}"
