"""Which software a broker runs: by recorded ApiVersions of Apache Kafka, and imitated ones of other systems."""

import re

import pytest

from tests.sources.recorded import RECORDED_APIS
from toolkit.analysis.exposure import (
    RELEASES,
    Apis,
    BrokerIdentity,
    Software,
    broker_facts,
    is_of_another_system,
    released_apis,
    software_gaps,
    software_of,
)

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


def test_client_telemetry_is_a_setting() -> None:
    apis = with_apis(KAFKA, GetTelemetrySubscriptions=(0, 0), PushTelemetry=(0, 0))
    assert software_of(broker(apis)).releases == ["4.3"]


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


@pytest.mark.parametrize("name", IMITATED)
def test_other_systems_are_named_with_their_own_remedy(name: str) -> None:
    software = software_of(IMITATED[name])
    system = software.system
    assert system is not None
    assert name.split(",")[0] in system.name
    (gap,) = software_gaps([IMITATED[name]])
    assert gap == (
        f"a coordinator of Apache Kafka: broker 1 runs {system.name} ({software.evidence}). {system.differs} "
        f"{system.remedy}"
    )


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (10_000, "Confluent Server or Confluent Cloud"),
        (10_999, "Confluent Server or Confluent Cloud"),
        (32_766, "Confluent Server or Confluent Cloud"),
        (32_767, "Confluent Server or Confluent Cloud"),
        (501, "AutoMQ"),
        (529, "AutoMQ"),
        (15_000, "Redpanda"),
        *((key, UNKNOWN_SYSTEM.name) for key in (500, 530, 9_999, 11_000, 14_999, 15_001, 32_765)),
    ],
)
def test_an_api_key_of_its_own_names_a_system(key: int, name: str) -> None:
    assert software_of(broker(KAFKA | {key: (0, 0)})).name == name


@pytest.mark.parametrize(
    ("domain", "name"),
    [
        ("redpanda.com", "Redpanda"),
        *((domain, "Confluent Server or Confluent Cloud") for domain in ("confluent.cloud", "confluentgov.com")),
        ("warpstream.com", "WarpStream"),
        ("servicebus.windows.net", "Azure Event Hubs"),
        ("servicebus.chinacloudapi.cn", "Azure Event Hubs"),
        ("servicebus.usgovcloudapi.net", "Azure Event Hubs"),
        *((domain, "StreamNative") for domain in ("streamnative.cloud", "snio.cloud")),
        ("example.org", "Apache Kafka"),
    ],
)
def test_an_address_names_a_system(domain: str, name: str) -> None:
    assert software_of(broker(host=f"b0.{domain}")).name == name
    assert software_of(broker(host=f"{domain}.example.org")).name == "Apache Kafka"


def test_the_lowest_key_of_a_system_is_its_evidence() -> None:
    assert software_of(IMITATED["AutoMQ"]).evidence == "it has API key 501, which Apache Kafka has not"


def test_a_gap_of_another_system_differs_from_one_of_unknown_software() -> None:
    """What is not known may be a proxy or a newer Apache Kafka, which has no remedy of its own."""
    (redpanda,), (unknown,) = software_gaps([IMITATED["Redpanda"]]), software_gaps([broker(FEW)])
    assert is_of_another_system(redpanda) is True
    assert is_of_another_system(unknown) is False
    assert is_of_another_system("coordinators of brokers 2, 3 (TIMEOUT)") is False


UNKNOWN = {
    "a newer release": with_apis(KAFKA, EndTxn=(0, 9)),
    "a lowest version that no release has": with_apis(KAFKA, EndTxn=(1, 5)),
    "an API that no release has": with_apis(KAFKA, key95=(0, 0)),
    "a proxy that knows fewer versions": {key: (low, min(high, low + 1)) for key, (low, high) in KAFKA.items()},
    "no markers": with_apis(KAFKA, WriteTxnMarkers=None),
    "versions of two releases": with_apis(KAFKA, Fetch=RECORDED_APIS["3.9.2"][1]),
    "few APIs": FEW,
    "nothing": {},
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_matches_no_release_is_not_proven_to_be_apache_kafka(name: str) -> None:
    software = software_of(broker(UNKNOWN[name]))
    assert (software.system, software.releases) == (UNKNOWN_SYSTEM, ())
    assert len(software_gaps([broker(UNKNOWN[name])])) == 1


def test_the_differences_are_named() -> None:
    software = software_of(broker(with_apis(KAFKA, EndTxn=(0, 9), key95=(0, 0), key96=(0, 0), Fetch=None)))
    assert software.evidence == (
        "its APIs are those of no release of Apache Kafka; against 4.3: Fetch is missing, EndTxn has versions 0 to 9, "
        "API key 95 is unknown, and 1 more"
    )
    (gap,) = software_gaps([broker(FEW)])
    assert re.search(r"its APIs are those of no release of Apache Kafka; against \d\.\d: .*, and \d+ more\)\. ", gap)


@pytest.mark.parametrize(
    ("unknown_keys", "listed"),
    [
        ((95, 96, 97), "API key 95 is unknown, API key 96 is unknown, API key 97 is unknown"),
        ((95, 96, 97, 98), "API key 95 is unknown, API key 96 is unknown, API key 97 is unknown, and 1 more"),
    ],
)
def test_a_sentence_names_three_differences(unknown_keys: tuple[int, ...], listed: str) -> None:
    apis = {**KAFKA, **dict.fromkeys(unknown_keys, (0, 0))}
    assert software_of(broker(apis)).evidence == (
        f"its APIs are those of no release of Apache Kafka; against 4.3: {listed}"
    )


def test_produce_may_be_listed_from_its_own_lowest_version_on() -> None:
    """Kafka 4.0 lists it from version 0 on for librdkafka, as the recorded brokers do."""
    assert software_of(broker(with_apis(KAFKA, Produce=(3, 13)))).releases == ["4.3"]
    assert software_of(broker(with_apis(KAFKA, Produce=(2, 13)))).system == UNKNOWN_SYSTEM


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
