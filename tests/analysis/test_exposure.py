"""Which software a broker runs, and what exposes a cluster: bugs, settings, clients, and what is not known."""

import datetime as dt
import re
import tomllib
import types
from collections.abc import Sequence
from dataclasses import fields
from importlib import resources
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from tests.sources.recorded import RECORDED_APIS
from tests.stored import compare
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.analysis.exposure import (
    MAX_TIMEOUT,
    METADATA,
    RELEASES,
    VERIFICATION,
    VERSION,
    Apis,
    BrokerIdentity,
    CompatibleSystem,
    KnownBug,
    ObservedBroker,
    ObservedCluster,
    Release,
    Setting,
    Software,
    broker_facts,
    exposure_rows,
    is_of_another_system,
    parse_facts,
    release_of,
    released_apis,
    software_gaps,
    software_of,
)
from toolkit.errors import UsageError
from toolkit.schema.live import Exposure
from toolkit.schema.log import TransactionLogRecord

KAFKA = RECORDED_APIS["4.3.1"]
NAMES = {each.name: each.key for each in released_apis()}
UNKNOWN_SYSTEM = broker_facts().unknown_system


def broker(
    apis: Apis = KAFKA, *, broker_id: int = 1, host: str = "broker-1.example.org", cluster_id: str | None = "M8XbVDmI"
) -> BrokerIdentity:
    return BrokerIdentity(broker_id=broker_id, host=host, cluster_id=cluster_id, apis=apis)


def with_apis(base: Apis, **changed: tuple[int, int] | None) -> Apis:
    """APIs with other versions of some; null removes one. Names with a number are keys that Kafka does not name."""
    apis = dict(base)
    for name, versions in changed.items():
        key = int(name[3:]) if name.startswith("key") else NAMES[name]
        if versions is None:
            del apis[key]
        else:
            apis[key] = versions
    return apis


def intersected(mine: Apis, controller: Apis, forwarded: set[int]) -> Apis:
    """What a broker lists whose active controller is of another release."""
    apis = {}
    for key, (low, high) in mine.items():
        if key not in forwarded:
            apis[key] = low, high
        elif key in controller:
            apis[key] = max(low, controller[key][0]), min(high, controller[key][1])
    return apis


@pytest.mark.parametrize("recorded", RECORDED_APIS)
def test_real_brokers_of_every_release_are_apache_kafka(recorded: str) -> None:
    software = software_of(broker(RECORDED_APIS[recorded]))
    assert software.system is None
    assert (
        recorded.rpartition(".")[0] in software.releases or recorded.split()[0].rpartition(".")[0] in software.releases
    )
    assert software_gaps([broker(RECORDED_APIS[recorded])]) == []


def test_the_table_has_every_release() -> None:
    assert {release for each in released_apis() for release in each.releases} == set(RELEASES)


@pytest.mark.parametrize(("mine", "controller"), [("3.9.2", "3.5.2"), ("4.3.1", "3.9.2"), ("4.4.0", "4.1.2")])
def test_a_broker_in_a_rolling_upgrade_is_apache_kafka(mine: str, controller: str) -> None:
    """It lists the forwarded APIs in the versions that the controller, of the older release, knows as well."""
    forwarded = {each.key for each in released_apis() if each.listed == "forwarded"}
    apis = intersected(RECORDED_APIS[mine], RECORDED_APIS[controller], forwarded)
    assert apis != RECORDED_APIS[mine]
    assert mine.rpartition(".")[0] in software_of(broker(apis)).releases


REDPANDA = ["Produce", "Fetch", "ListOffsets", "Metadata", "FindCoordinator", "ApiVersions", "InitProducerId",
            "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "DescribeProducers",
            "DescribeTransactions", "ListTransactions"]  # fmt: skip
FEW = {NAMES[name]: KAFKA[NAMES[name]] for name in REDPANDA}
IMITATED = {
    "Redpanda": broker(FEW, cluster_id="redpanda.2d339cd9-b540-484d-80da-16cd0650e49b"),
    "Redpanda, by a key of its own": broker(with_apis(FEW, key15000=(0, 0)), cluster_id="chosen"),
    "Redpanda, with all APIs of Kafka": broker(cluster_id="redpanda.2d339cd9-b540-484d-80da-16cd0650e49b"),
    "Confluent Server": broker(with_apis(KAFKA, key10000=(0, 0))),
    "Confluent Server, older": broker(with_apis(KAFKA, key10000=(0, 0), key32766=(0, 0), key32767=(0, 0))),
    "Confluent Cloud": broker(host="b0-pkc-12345.eu-central-1.aws.confluent.cloud"),
    "AutoMQ": broker(with_apis(RECORDED_APIS["3.9.2"], key501=(0, 1), key515=(0, 1))),
    "WarpStream": broker(FEW, host="api-11.discoveryv2.prod-z.us-east-1.warpstream.com"),
    "Azure Event Hubs": broker(FEW, host="NAMESPACE.servicebus.windows.net", cluster_id=None),
    "StreamNative": broker(FEW, host="kafka-0.cluster.streamnative.cloud"),
}


UNKNOWN: dict[str, Apis] = {
    "a newer release": with_apis(KAFKA, EndTxn=(0, 9)),
    "a lowest version that no release has": with_apis(KAFKA, EndTxn=(1, 5)),
    "an API that no release has": with_apis(KAFKA, key95=(0, 0)),
    "a proxy that knows fewer versions": {key: (low, min(high, low + 1)) for key, (low, high) in KAFKA.items()},
    "no markers": with_apis(KAFKA, WriteTxnMarkers=None),
    "versions of two releases": with_apis(KAFKA, Fetch=RECORDED_APIS["3.9.2"][1]),
    "few APIs": FEW,
    "nothing": {},
}
KEYS = (10_000, 10_999, 32_766, 32_767, 501, 529, 15_000, 500, 530, 9_999, 11_000, 14_999, 15_001, 32_765)
DOMAINS = ("redpanda.com", "confluent.cloud", "confluentgov.com", "warpstream.com", "servicebus.windows.net",
           "servicebus.chinacloudapi.cn", "servicebus.usgovcloudapi.net", "streamnative.cloud", "snio.cloud",
           "example.org")  # fmt: skip
BROKERS: dict[str, BrokerIdentity] = {
    **IMITATED,
    **{name: broker(apis) for name, apis in UNKNOWN.items()},
    "several differences": broker(with_apis(KAFKA, EndTxn=(0, 9), key95=(0, 0), key96=(0, 0), Fetch=None)),
    # Kafka 4.0 lists it from version 0 on for librdkafka, as the recorded brokers do.
    "Produce from its own lowest version on": broker(with_apis(KAFKA, Produce=(3, 13))),
    "Produce from below it on": broker(with_apis(KAFKA, Produce=(2, 13))),
    **{f"API key {key}": broker(KAFKA | {key: (0, 0)}) for key in KEYS},
    **{f"at {host}": broker(host=host) for each in DOMAINS for host in (f"b0.{each}", f"{each}.example.org")},
}


def test_the_software_of_a_broker() -> None:
    """Its name, releases and evidence, and the gap that it is. What is not known may be a proxy or a newer Kafka."""
    lines = []
    for name, one in BROKERS.items():
        found = software_of(one)
        lines += [f"# {name}", f"{found.name}, {found.release_range}: {found.evidence}"]
        lines += [f"    another system: {is_of_another_system(each)}. {each}" for each in software_gaps([one])]
    compare("broker_software.txt", lines)
    assert is_of_another_system("coordinators of brokers 2, 3 (TIMEOUT)") is False


def test_brokers_of_one_kind_are_one_gap() -> None:
    """A single broker of another kind suffices: it may be the coordinator that does not know the transaction."""
    few = [broker(FEW, broker_id=2), broker(FEW, broker_id=3)]
    (gap,) = software_gaps([broker(broker_id=1), *few])
    assert gap.startswith("a coordinator of Apache Kafka: brokers 2, 3 run software that this version")


def test_every_remedy_is_a_sentence_and_never_an_abort_marker() -> None:
    for system in (*broker_facts().systems, UNKNOWN_SYSTEM):
        for text in (system.differs, system.remedy):
            assert text.endswith(".")
            assert "kafka-txn abort" not in text


def test_releases_with_one_table_are_a_range() -> None:
    two = Software(name="Apache Kafka", releases=["3.3", "3.4"], evidence="its APIs", system=None)
    assert two.release_range == "3.3 to 3.4"
    assert software_of(broker()).release_range == "4.3"
    assert software_of(broker(FEW)).release_range is None


BUGS = broker_facts().bugs
NOW = dt.datetime(2026, 11, 28, tzinfo=dt.UTC)
VERSION_2 = {METADATA: 25, VERSION: 2}


def observed(*brokers: dict[str, Any], **facts: Any) -> list[Exposure]:
    """The rows on a cluster; a broker is the fields that it has."""
    seen = [ObservedBroker(broker_id=number, observed_at=NOW, **each) for number, each in enumerate(brokers, 1)]
    return list(exposure_rows(ObservedCluster(observed_at=NOW, brokers=seen, **facts)))


def bug_rows(version: str, **facts: Any) -> dict[str, Exposure]:
    rows = observed({"release": release_of(version)}, **{"features": VERSION_2} | facts)
    return {row.name: row for row in rows if row.name.startswith("KAFKA-")}


def previous_release(release: Release) -> Release:
    """The previous patch release, or one of the previous minor release."""
    major, minor, patch = release
    if patch:
        return major, minor, patch - 1
    return (major, minor - 1, 9) if minor else (major - 1, 9, 9)


@pytest.mark.parametrize("bug", BUGS.values(), ids=lambda bug: bug.key)
def test_a_bug_affects_releases_from_its_first_to_before_its_fix(bug: KnownBug) -> None:
    assert re.fullmatch(r"KAFKA-\d+", bug.key)
    for text in (bug.title, bug.effect, bug.remedy):
        assert text.endswith(".")
    others = [since for since, _ in bug.affected]
    for since, until in bug.affected:
        assert bug.affects(since) is True
        if until:
            assert bug.affects(previous_release(until)) is True
            assert bug.affects(until) is (until in others)
            assert ".".join(map(str, until)) in bug.fixed_in
    first = bug.affected[0][0]
    assert bug.affects(previous_release(first)) is False
    assert bug.affects((99, 0, 0)) is (bug.affected[-1][1] is None)


def test_a_minor_release_is_affected_fully_partly_or_not() -> None:
    cleaner, channel = BUGS["KAFKA-14055"], BUGS["KAFKA-20322"]
    assert [cleaner.affects(minor) for minor in [(2, 8), (3, 0), (3, 1), (3, 2), (3, 3)]] == [
        True,
        None,
        None,
        None,
        False,
    ]
    assert BUGS["KAFKA-20785"].affects((4, 0)) is True, "from its first patch release on"
    assert [channel.affects(minor) for minor in [(4, 1), (4, 2), (4, 3)]] == [False, None, False]
    assert [BUGS["KAFKA-20090"].affects(minor) for minor in [(0, 10), (3, 9), (4, 2), (4, 3)]] == [
        False,
        True,
        True,
        False,
    ]


def test_a_bug_of_transaction_version_2_needs_it() -> None:
    """It was exposed without, too, as on a cluster that was upgraded and not finalized."""
    needs = {key for key, bug in BUGS.items() if bug.transaction_version}
    assert needs == {key for key, bug in BUGS.items() if bug.title.startswith("With transaction version 2, ")}
    lower, unread = bug_rows("4.0.0", features={VERSION: 1}), bug_rows("4.0.0", features={}, features_error="TIMEOUT")
    assert {key for key, row in bug_rows("4.0.0", features={}).items() if row.exposed is False} == needs
    for rows, exposed, start in (
        (lower, False, "It needs transaction.version 2, and this cluster has 1. With "),
        (unread, None, "It needs transaction.version 2, and the level of this cluster could not be read. With "),
    ):
        assert {key for key, row in rows.items() if row.exposed is not True} == needs
        assert all(rows[key].means.startswith(start) and rows[key].exposed is exposed for key in needs)
    patch_unknown = bug_rows("4.0", features={})
    assert (patch_unknown["KAFKA-19367"].exposed, patch_unknown["KAFKA-19690"].exposed) == (False, None)


WITH_BUGS = [
    "0.11.0", "2.0.0", "2.8.2", "3.0.2", "3.1.0", "3.1.2", "3.2.1", "3.5.2", "3.6.0", "3.7.0", "3.8.0", "3.9.1",
    "3.9.2", "4.0.0", "4.0.1", "4.0.2", "4.1.1", "4.1.2", "4.2", "4.2.0", "4.2.1", "4.2.2", "4.3.0", "4.3.1", "4.4.0",
]  # fmt: skip
VALUES = {METADATA: (None, "25"), VERSION: (None, "1", "2", "3"), VERIFICATION: (None, "false", "true"),
          MAX_TIMEOUT: (None, "900000", "900001")}  # fmt: skip
EITHER = Software(name="Apache Kafka", releases=["3.2", "3.3"], evidence="its APIs", system=None)
CLIENTS = [
    *(TransactionLogRecord(transactional_id=name, client_transaction_version=version) for name, version in (
        ("older", None), ("newer", 0), ("newer", 2), ("downgraded", 2), ("downgraded", 1), ("expired", 0))),
    TransactionLogRecord(transactional_id="expired", tombstone=True),
    TransactionLogRecord(error="DENIED", txn_state_partition=7), TransactionLogRecord(error="DENIED"),
]  # fmt: skip
CLUSTERS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {  # its brokers, and what else is known
    **{
        f"{name} is {value}": ([{"settings": {name: value}}], {}) if name in (VERIFICATION, MAX_TIMEOUT) else
        ([], {"features": {name: int(value)} if value else {}})
        for name, values in VALUES.items() for value in values
    },
    "the patch release is not known": ([{"release": (4, 2)}], {"features": VERSION_2}),
    "what is not known exposes nothing and says so": ([{}], {"features_error": "TIMEOUT: no answer."}),
    "nor what could not be read": (
        [{"settings_error": "TIMEOUT: no answer.", "release_error": "TIMEOUT: no answer."}], {}),
    # A broker of 3.6 or newer verifies with the coordinator, and one that is older cannot answer.
    "verification beside older brokers": (
        [{"settings": {VERIFICATION: "true"}}, {"settings": {VERIFICATION: None}}, {"settings_error": "X"}], {}),
    "several releases": ([{"release": each} for each in ((3, 9), (4, 0), None, (3, 9))], {}),
    "one release": ([{"release": (4, 0)}, {"release": (4, 0)}], {}),
    "one release, and one that is not known": ([{"release": (4, 0)}, {"release": None}], {}),
    "no release": ([{"release": None}, {"release": None}], {}),
    # With ZooKeeper, APIs alone tell: brokers of one release or the other were not known to be older than a third.
    "one of two releases, and a third": ([{"software": EITHER}, {"release": (3, 6)}], {}),
    "one of two releases, and one of these": ([{"software": EITHER}, {"release": (3, 3)}], {}),
    "clients below version 2, and records that could not be read": ([], {"records": CLIENTS}),
}  # fmt: skip


def test_what_exposes_a_cluster() -> None:
    """Each row, whole; of releases, the keys of the bugs that they have."""
    lines = [f"{each}: {' '.join(key for key, row in bug_rows(each).items() if row.exposed)}" for each in WITH_BUGS]
    for set_, shown in ((None, None), (None, (4, 2)), ((4, 2, 1), (4, 2)), ((4, 2, 1), None), ((4, 2, 1), (4, 1))):
        one = ObservedBroker(broker_id=1, observed_at=NOW, release=shown)
        rows = list(exposure_rows(ObservedCluster(observed_at=NOW, brokers=[one]), release=set_))
        lines += [f"{set_}, shown as {shown}: {row.value}: {row.means}" for row in rows if row.name == "kafka version"]
    for name, (brokers, facts) in CLUSTERS.items():
        rows = observed(*brokers, **facts)
        of = [
            (row.broker_id, row.transactional_id, row.name, row.value, row.exposed, row.means, row.error)
            for row in rows
            if row.exposed is None or not row.name.startswith("KAFKA-")
        ]
        lines += [f"# {name}", *(" | ".join("-" if each is None else str(each) for each in row) for row in of)]
    compare("exposure.txt", lines)


def test_the_highest_metadata_version_of_each_release() -> None:
    """Of MetadataVersion: 3.3-IV3 is 7, 4.0-IV3 is 25. Between them are levels that no release ends with."""
    levels = [7, 8, 11, 14, 19, 20, 21, 25, 27, 29, 30, 33]
    releases = [*((3, minor) for minor in range(3, 10)), *((4, minor) for minor in range(5))]
    assert broker_facts().releases == dict(zip(levels, releases, strict=True))


def test_the_default_of_the_longest_timeout_is_safe() -> None:
    assert broker_facts().settings[MAX_TIMEOUT].highest_safe == MAX_TRANSACTION_TIMEOUT_MS


FACTS = tomllib.loads((resources.files("toolkit.analysis") / "broker_software.toml").read_text(encoding="utf-8"))


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of an annotation, sequences and tuples with their elements."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        return any(fits(value, each) for each in arguments)
    if origin is Sequence:
        return isinstance(value, list | tuple) and all(fits(each, arguments[0]) for each in value)
    if origin is tuple and arguments[-1:] == (...,):
        return isinstance(value, tuple) and all(fits(each, arguments[0]) for each in value)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(arguments) and all(map(fits, value, arguments))
    return type(value) is hint


def test_each_fact_has_the_type_of_its_field() -> None:
    facts = broker_facts()
    rows: list[Setting | KnownBug | CompatibleSystem] = [*facts.settings.values(), *facts.bugs.values()]
    for row in [*rows, *facts.systems, facts.unknown_system]:
        hints = get_type_hints(type(row))
        for each in fields(row):
            assert fits(getattr(row, each.name), hints[each.name]), (row, each.name)
    assert not fits("2", int | None)
    assert not fits(((4, 3), None, None), tuple[Release, Release | None])


def test_each_setting_is_complete() -> None:
    for name, setting in broker_facts().settings.items():
        sentences = [setting.safe, setting.unsafe, setting.absent, setting.beside_older]
        assert all(text.endswith(".") for text in sentences if text), name
        assert any(sentences), name
        limits = [setting.lowest_safe, setting.highest_safe, setting.safe_value]
        assert sum(limit is not None for limit in limits) <= 1, "only one of them counts"
        assert setting.subject in {"cluster", "broker", "transactional_id"}


def test_a_key_that_nothing_reads_is_an_error() -> None:
    assert len(parse_facts(**FACTS).bugs) == len(BUGS)
    for table in ("settings", "bugs", "systems"):
        name, row = next(iter(FACTS[table].items()))
        with pytest.raises(TypeError, match="misspelt"):
            parse_facts(**FACTS | {table: {name: row | {"misspelt": "x"}}})
    with pytest.raises(TypeError, match="misspelt"):
        parse_facts(**FACTS | {"unknown_system": FACTS["unknown_system"] | {"misspelt": "x"}})
    with pytest.raises(TypeError, match="misspelt"):
        parse_facts(**FACTS, misspelt={})  # type: ignore[call-arg]


@pytest.mark.parametrize("text", ["", "4", "four", "4.x", "4.3.1-rc0", "-4.3"])
def test_an_invalid_version_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="is not a Kafka version"):
        release_of(text)
    assert release_of("3.9") == (3, 9)
