"""Symptoms of pasted errors: texts of clients, unrelated texts, and hostile texts."""

import random
import re
import signal
from collections.abc import Iterator

import pytest

from tests.analysis.symptom_texts import CITED, UNRELATED
from tests.stored import compare
from toolkit import explain
from toolkit.analysis import symptoms as recognition
from toolkit.analysis.symptoms import SYMPTOMS, NamedResources, named_resources, recognize, searchable
from toolkit.command_line import command_in

WORDINGS = [each for symptom in SYMPTOMS.values() for each in symptom.wordings]


def symptoms(text: str) -> list[str]:
    return [each.symptom.name for each in recognize(text)[0]]


def resources_in(text: str) -> NamedResources:
    return named_resources(text)


@pytest.mark.parametrize(
    ("symptom", "client", "text"),
    [(symptom, client, text) for symptom, client, _, text in CITED],
    ids=[f"{symptom}, {source}" for symptom, _, source, _ in CITED],
)
def test_a_client_error_matches_exactly_its_symptom(symptom: str, client: str, text: str) -> None:
    (recognized,), _ = recognize(text)
    assert recognized.symptom.name == symptom
    assert client in recognized.clients


@pytest.mark.parametrize("text", UNRELATED)
def test_other_errors_and_log_lines_are_unknown(text: str) -> None:
    assert symptoms(text) == []


def test_wrapped_coloured_and_json_text_is_matched() -> None:
    plain = "There is a newer producer with the same transactionalId which fences the current one."
    for text in (
        plain.replace(" ", "\n      "),
        f"\x1b[31mERROR\x1b[0m {plain[:30]}\x1b[1m{plain[30:]}\x1b[0m",
        '{"level":"ERROR","msg":"failed:\\n\\t' + plain + '\\u000a"}',
        plain.upper(),
        f"\ufeff{plain}\r\n",
    ):
        assert symptoms(text) == ["producer-fenced"], text


def test_consequences_of_an_error_are_left_out_if_the_error_is_present() -> None:
    follow_up = (
        "org.apache.kafka.common.KafkaException: Cannot execute transactional method because we are in an error state"
    )
    assert symptoms(follow_up) == ["failed-earlier"]
    assert symptoms(f"{follow_up}\nCaused by: OutOfOrderSequenceException: x") == ["out-of-order-sequence"]


TEXTS = [
    "[Producer clientId=p, transactionalId=pay-7] x",
    "Producer with transactionalId 'pay 7' x 'pay-7'",
    "Producer with transactionalId 'pay-7' and ProducerIdAndEpoch(producerId=171100, epoch=1) has been",
    "Initialized transactionalId pay-7 with producerId 4 and epoch 0 on partition __transaction_state-3",
    "\ttransactional.id = null\n\tgroup.id = null\n",
    '{"transactional_id": "pay-7", "group_id": "billing"}',
    "[Consumer clientId=c, groupId=billing] x",
    'Group "billing" received op',
    "Out of order sequence number for producer 4 at offset 10 in partition my.topic-x-0: 1 (incoming)",
    "Got error produce response on topic-partition orders-12, retrying",
    "expired before the last committed offset for partitions [a-0, b-c-11] could be determined",
    "ProduceRequest for orders [3] with 1 message(s) failed (broker 1 PID{Id:1001,Epoch:0}, base seq 1)",
    "Failed to get records for spark-executor-g my-topic 0 5 after polling for 1000",
    "Timeout of 8000ms expired before the position for partition orders-1 could be determined",
    "Failed to get records for spark-executor-billing orders-0 11 after polling for 120000",
    "Cannot fetch offset 11 (GroupId: billing, TopicPartition: orders-0).",
    "Could not read records in offset [11, 12) for topic partition orders-0 with consumer group billing.",
    "Got wrong record for billing orders 0 even after seeking to offset 11 got offset 12 instead.",
    "Undefined offset with no reset policy for partitions: [orders-0, orders-1]",
    "Timeout of 60000ms expired before successfully committing offsets {orders-0=OffsetAndMetadata{offset=11}}",
    "%4|1700000000.1|OFFSET|c-1| [thrd:main]: orders [0]: offset reset (at offset 11) to END",
    "Marking its partition (__consumer_offsets-3) as uncleanable",
    "ERROR partition orders-0 ProducerFencedException; Partition a.b-c-12 [broker 1]; cannot abort orders-1@4",
    "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID\n"
    "billing orders 0 5 6 1 - - -\nbilling orders 1 - 9 - - - -\n",
]


def test_resources_named_in_a_text_are_found() -> None:
    found = ((text, resources_in(text)) for text in TEXTS)
    compare("named_resources.txt", (line for text, named in found for line in (*text.split("\n"), f"    {named}")))


@pytest.mark.parametrize("partition", ["\N{SUPERSCRIPT TWO}", "9" * 11])
@pytest.mark.parametrize("producer_id", ["9" * 19, "9" * 5_000])
def test_a_number_that_kafka_cannot_have_names_nothing(partition: str, producer_id: str) -> None:
    """The first ended `explain` with a traceback, the others where a table or a request was made of them."""
    explained = explain(f"Topic Partition ProducerId\norders {partition} {producer_id}\nproducerId={producer_id}")
    assert explained.named == NamedResources()
    assert len(explained.frame()) == 1


def test_of_a_long_table_every_partition_is_named_and_what_is_left_out_is_counted() -> None:
    """Of a table of 15 partitions ten were looked up, and "nothing hangs" was said with the eleventh held."""
    header = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID\n"
    named = resources_in(header + "".join(f"g-{n} orders {n} 5 6 1 - - -\n" for n in range(15)))
    assert named.partitions == tuple(("orders", n) for n in range(15))
    assert (len(named.groups), named.left_out) == (10, ("5 more groups",))


def test_other_text_ends_a_table_and_an_empty_line_does_not() -> None:
    """Words of a sentence with a number in the right place named a partition."""
    text = "Topic Partition ProducerId\norders 1 7\n\norders 2 8\nThat is all there is.\nretried 3 9\n"
    assert resources_in(text).partitions == (("orders", 1), ("orders", 2))


def test_a_metric_of_the_lso_is_no_late_transaction() -> None:
    """Of a transaction that was open for milliseconds, `explain` said that the broker counts it as late."""
    for text in (
        'kafka_cluster_partition_laststableoffsetlag{topic="orders",partition="3",} 2.0',
        "kafka.cluster:type=Partition,name=LastStableOffsetLag,topic=orders,partition=31 Value = 120",
    ):
        assert symptoms(text) == ["lso-lag-metric"], text
    assert symptoms("kafka.cluster:type=Partition,name=LastStableOffsetLag,topic=orders,partition=31 Value = 0") == []
    assert symptoms("kafka_server_replicamanager_partitionswithlatetransactionscount 2.0") == ["late-transactions"]


def test_resources_named_by_the_caller_are_listed_first() -> None:
    resources = resources_in("transactionalId=b, groupId=g").with_more(
        transactional_ids=["a"], topics=["orders"], partitions=[1, 2]
    )
    assert resources.transactional_ids == ("a", "b")
    assert resources.partitions == (("orders", 1), ("orders", 2))
    assert resources.topics == ()
    assert NamedResources().with_more(topics=["orders"]).topics == ("orders",)
    assert not NamedResources()
    assert explain("groupId=g", groups=["billing"]).named.groups == ("billing", "g")


SECRETS = [
    "sasl.password=hunter2",
    'sasl.jaas.config = org.apache.kafka.PlainLoginModule required username="u" password="hunter2 x";',
    "ssl.key.password: hunter2", '{"client_secret":"hunter2"}', "Authorization: Bearer hunter2",
    "https://user:hunter2@registry:8081/x", "--token hunter2 api_key=hunter2", "password='hunter2'",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_are_never_taken_for_resources(secret: str) -> None:
    for text in (secret, f"transactionalId={secret}", f"groupId={secret} ProducerFencedException {secret}"):
        recognized, resources = recognize(text)
        assert "hunter2" not in repr((recognized, resources))


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A twentieth of what is read of a text, so that a search takes no seconds."""
    monkeypatch.setattr(recognition, "MAX_CHARACTERS", 50_000)
    return 50_000


def test_hostile_text_is_read_up_to_a_limit_and_is_unknown(limit: int) -> None:
    rng = random.Random(7)
    huge = "".join(chr(rng.randrange(0x20, 0x2FFF)) for _ in range(3 * limit))
    for text in (huge, "\x00\x1b[" * limit, "\x1b]0;" * limit, "\ud800" * 1000, "\\" * limit):
        assert len(searchable(text)) <= limit + 1
        assert symptoms(text) == []


def test_the_ends_of_a_huge_log_are_read(limit: int) -> None:
    filling = "INFO nothing happened\n" * (limit // 10)
    assert symptoms(f"PRODUCER_FENCED {filling} CONCURRENT_TRANSACTIONS") == [
        "producer-fenced",
        "concurrent-transactions",
    ]
    assert symptoms(f"{filling} PRODUCER_FENCED {filling}") == []


def patterns() -> Iterator[re.Pattern[str]]:
    yield from (each.pattern for each in WORDINGS)
    for value in vars(recognition).values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, re.Pattern):
                yield each


PATTERNS = list(dict.fromkeys(patterns()))


def test_every_repetition_in_a_pattern_is_bounded() -> None:
    assert len(PATTERNS) > len(WORDINGS)
    for pattern in PATTERNS:
        without_classes = re.sub(r"\\.|\[(?:\\.|[^\]\\])+\]", "x", pattern.pattern)
        assert not re.search(r"[*+]|\{\d*,\}", without_classes), f"an unbounded repetition: {pattern.pattern}"
        assert not re.search(r"\}\)[{]", without_classes), f"a repetition of a repetition: {pattern.pattern}"


def test_no_pattern_backtracks_catastrophically() -> None:
    """Its own literals, without their end, repeated: no search takes so much processor time."""
    assert [each.pattern for each in PATTERNS if not ends(each, seconds=5)] == []
    assert not ends(re.compile("(a+)+b"), seconds=0.1), "it is noticed"


def ends(pattern: re.Pattern[str], *, seconds: float) -> bool:
    """Whether the searches end within so much processor time."""
    parts = re.sub(r"\\[bSdws]|\(\?[:<!=P]*|[\\(){}\[\]|?^$]", " ", pattern.pattern)
    former = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        for unit in (
            parts[:-2],
            parts.split(" ", 1)[0] + " a",
            "a-",
            "1 ",
            "in partition a-1",
            "lag 0 read_committed ",
        ):
            text = (unit * (50_000 // max(len(unit), 1)))[:50_000]
            sum(1 for _ in pattern.finditer(text + "a" * 50))
    except KeyboardInterrupt:
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)
    return True


def test_every_symptom_is_complete() -> None:
    for name, symptom in SYMPTOMS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert symptom.title.endswith(".")
        for sentences in (symptom.causes, symptom.checks, symptom.safe, symptom.never):
            assert sentences
            assert all(each[0].isupper() or each.startswith(("kafka-", "__", "`", "librdkafka", "abort", "transaction"))
                       for each in sentences)  # fmt: skip
            lines = [line for each in sentences for line in each.split("\n")]
            assert all(command_in(each) or each.endswith((".", "?", ":")) for each in lines), name
        assert symptom.sources
        assert all(len(each) > 3 for each in symptom.sources)
        assert set(symptom.instead_of) <= SYMPTOMS.keys() - {name}
