"""Markers on other partitions, where the coordinators' log does not prove an outcome."""

from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import observation, partition, producer, transaction
from tests.analysis.logged import ELSEWHERE, HERE, at, coordinator_log, data, excerpt, marker, open_transaction, record
from toolkit.analysis.diagnosis.diagnose import diagnose
from toolkit.analysis.diagnosis.evidence.diagnosis_context import (
    DiagnosisContext,
    LogEvidence,
    marker_partitions,
    named_topics,
    opened_after,
    select_logs,
)
from toolkit.analysis.diagnosis.evidence.other_markers import OtherMarker, other_markers
from toolkit.analysis.diagnosis.verdicts import Outcome
from toolkit.formats.log.headers import ABORT, COMMIT
from toolkit.schema.table import TopicPartition


def found(*rows: dict[str, Any], tp: TopicPartition = ELSEWHERE, pid: int = 7) -> list[OtherMarker]:
    return list(other_markers(tp, excerpt(*rows), pid))


def outcome(*markers: OtherMarker, first: int | None = 4, newest: int = 4) -> Outcome:
    """Of open records with epochs `first` to `newest`; no record of their producer is left in the coordinators' log."""
    here = {} if first is None else {HERE: excerpt(data(100, epoch=first), data(101, epoch=newest))}
    log = LogEvidence(excerpts=here, other_markers=markers)
    return DiagnosisContext(open_transaction(epoch=newest), log).outcome


COMMITTED = (data(98, epoch=4), marker(99, COMMIT, epoch=5))
ABORTED = (data(98, epoch=4), marker(99, ABORT, epoch=5))
EARLIER_COMMIT = (data(96, epoch=3), marker(97, COMMIT, epoch=4))


def test_a_commit_marker_of_the_same_transaction_proves_the_commit() -> None:
    proven = outcome(*found(*COMMITTED))
    assert (proven.name, proven.missing) == ("commit", ())
    assert proven.reason.startswith("the COMMIT marker of the same transaction (epoch 4) is at offset 99 of payments-3")
    (entry,) = proven.evidence
    assert (entry.name, entry.value and entry.value[:24]) == ("marker_elsewhere", "offsets 99..99: COMMIT, ")


def test_an_abort_marker_proves_an_abort_only_of_clients_that_raise_the_epoch() -> None:
    """A coordinator that times a transaction out raises the epoch of clients of version 1, too: of many transactions
    with this epoch, it aborted the last."""
    assert outcome(*found(*ABORTED)).name == "unknown"
    assert outcome(*found(*EARLIER_COMMIT, *ABORTED)).name == "abort"


def test_the_outcome_is_that_of_the_open_epoch_whatever_comes_before_and_after() -> None:
    later = (data(100, epoch=5), marker(101, ABORT, epoch=6))
    markers = found(*EARLIER_COMMIT, *COMMITTED, *later)
    assert [(each.offset, each.data_epoch, each.is_commit) for each in markers] == [
        (97, 3, True),
        (99, 4, True),
        (101, 5, False),
    ]
    assert outcome(*markers).name == "commit"
    assert outcome(*found(*EARLIER_COMMIT, *later)).name == "unknown", "neither is of epoch 4"


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((data(98, epoch=4), marker(99, COMMIT, epoch=4)), id="version 1: the epoch of its data"),
        pytest.param((data(98, epoch=3), marker(99, COMMIT, epoch=5)), id="data of an older epoch"),
        pytest.param((data(97, epoch=4), data(98, epoch=5), marker(99, COMMIT, epoch=5)), id="newer data since"),
        pytest.param((data(98, epoch=4, pid=8), marker(99, COMMIT, epoch=5)), id="data of another producer"),
        pytest.param((data(98, epoch=4), marker(99, COMMIT, epoch=5, pid=8)), id="marker of another producer"),
        pytest.param((marker(99, COMMIT, epoch=5), data(100, epoch=4)), id="data after the marker only"),
        pytest.param((marker(98, ABORT, epoch=4), marker(99, COMMIT, epoch=5)), id="a marker is no data"),
    ],
)
def test_a_marker_that_may_be_of_another_transaction_proves_nothing(rows: tuple[dict[str, Any], ...]) -> None:
    assert found(*rows) == []


def test_a_first_batch_counts_with_its_sequence_number_0_and_others_write_in_between() -> None:
    rows = (data(96, epoch=4, sequence=0), data(97, pid=8, epoch=9), data(98, pid=9), marker(99, COMMIT, epoch=5))
    assert [each.data_epoch for each in found(*rows)] == [4]


def test_markers_prove_nothing_about_another_producer_or_on_the_partition_itself() -> None:
    """The reader collects the markers of all producers, and a partition is another one for some of them only."""
    of_8 = found(data(98, pid=8, epoch=4), marker(99, COMMIT, pid=8, epoch=5), pid=8)
    assert outcome(*of_8).name == "unknown"
    assert outcome(*of_8, *found(*ABORTED)).name == "unknown", "the commit of another producer shows no version"
    assert outcome(*found(*COMMITTED, tp=HERE)).name == "unknown"


def test_of_records_of_two_epochs_a_marker_proves_nothing() -> None:
    """One transaction wrote the older ones, another one the newer; one marker ends both."""
    markers = found(*COMMITTED)
    assert outcome(*markers, first=4, newest=5).name == "unknown"
    assert outcome(*markers, first=3, newest=4).name == "unknown"
    assert outcome(*markers, first=None).name == "unknown", "the batch that opened it was not read"


def test_a_client_that_goes_from_version_1_to_2_within_an_epoch_has_written_a_batch_before() -> None:
    """The epoch of the open records is that of its transactions of version 1, too."""
    for sequence, expected in ((0, "commit"), (1, "unknown")):
        log = LogEvidence(
            excerpts={HERE: excerpt(data(100, epoch=4, sequence=sequence))}, other_markers=found(*COMMITTED)
        )
        assert DiagnosisContext(open_transaction(epoch=4), log).outcome.name == expected


def test_of_records_whose_opening_batch_was_deleted_the_epoch_is_not_known() -> None:
    """DeleteRecords moves the start of the log past it; the LSO stays below."""
    log = LogEvidence(excerpts={HERE: excerpt(data(101, epoch=4))}, other_markers=found(*COMMITTED))
    assert DiagnosisContext(open_transaction(epoch=4), log).outcome.name == "unknown"


def outcome_of_records_after(second: float, *markers: OtherMarker) -> str:
    """Of records that are younger than a marker of another producer at that time."""
    here = excerpt(marker(99, COMMIT, pid=8, second=second), data(100, epoch=4, second=second))
    log = LogEvidence(excerpts={HERE: here}, other_markers=markers)
    return DiagnosisContext(open_transaction(epoch=4), log).outcome.name


def test_a_marker_from_before_the_records_is_not_of_their_transaction() -> None:
    """They are a late batch. The clocks of two leaders may differ by 5 s."""
    (at_60,) = found(data(98, epoch=4), marker(99, COMMIT, epoch=5, second=60))
    assert outcome_of_records_after(65, at_60) == "commit"
    assert outcome_of_records_after(65.001, at_60) == "unknown"
    at_80 = replace(at_60, tp=TopicPartition("payments", 4), time=at(80))
    assert outcome_of_records_after(70, at_60, at_80) == "unknown", "one of the two is not"
    assert outcome_of_records_after(70, replace(at_60, time=None)) == "unknown", "it may be an old one"


def test_a_proven_outcome_is_not_replaced_by_a_marker_elsewhere() -> None:
    """The coordinators' log of this producer is complete: it decides."""
    rows = [record(0, "Empty", second=-1, epoch=4)]
    log = LogEvidence(
        excerpts={HERE: excerpt(data(100, epoch=4))},
        coordinators=coordinator_log(rows),
        other_markers=found(*COMMITTED),
    )
    assert DiagnosisContext(open_transaction(epoch=4), log).outcome.name == "undecided"
    assert DiagnosisContext(open_transaction(epoch=4), None).outcome.name == "unknown"


def test_a_log_that_was_not_read_up_to_the_start_shows_no_batches() -> None:
    """An excerpt up to the offset before it says nothing about what is open."""
    one = open_transaction()
    for rows, shown in (((data(98), data(99)), False), ((data(98), data(100)), True)):
        context = DiagnosisContext(one, LogEvidence(excerpts={HERE: excerpt(*rows)}))
        assert (context.producer_batches is not None) is shown
    assert DiagnosisContext(one, None).histories == ()


def test_between_the_data_and_its_marker_nothing_may_be_missing() -> None:
    """A batch that the cleaner removed may have had the marker's own epoch, as with version 1."""
    assert found(data(97, epoch=4), marker(99, COMMIT, epoch=5)) == []
    first = marker(95, ABORT, epoch=4)
    assert [each.offset for each in found(first, data(98, epoch=4), marker(99, COMMIT, epoch=5))] == [99]


def test_the_three_nearest_partitions_of_a_producer_are_read() -> None:
    """Those whose newest epoch is the lowest above the open one: their markers have the fewest records after them."""
    context = DiagnosisContext(open_transaction(epoch=4), LogEvidence(excerpts={}))
    epochs = {("a", 0): 9, ("b", 0): 5, ("c", 0): 6, ("d", 0): 7, ("e", 0): 4, HERE: 5, ("__transaction_state", 0): 5}
    rows = [producer(epoch=epoch, topic=topic, partition=n) for (topic, n), epoch in epochs.items()]
    rows += [producer(8, epoch=5, topic="f"), replace(producer(topic="g"), producer_epoch=None)]
    assert marker_partitions([context], rows) == {("b", 0): [context], ("c", 0): [context], ("d", 0): [context]}
    assert named_topics([context]) == {"orders"}


def test_a_hundred_partitions_are_read_each_for_all_of_its_producers() -> None:
    contexts = [DiagnosisContext(open_transaction(pid=pid), None) for pid in range(102)]
    rows = [producer(pid, epoch=5, topic="payments", partition=pid) for pid in range(101)]
    rows.append(producer(101, epoch=5, topic="payments", partition=0))
    read = marker_partitions(contexts, rows)
    assert set(read) == {("payments", number) for number in range(100)}
    assert read[TopicPartition("payments", 0)] == [contexts[0], contexts[101]]


def test_the_topics_of_its_producer_are_those_that_the_coordinators_records_name() -> None:
    rows = [record(1, "Ongoing", second=1, on=(ELSEWHERE,)), record(2, "Empty", second=2, topic_partitions=None)]
    log = LogEvidence(excerpts={}, coordinators=coordinator_log(rows))
    assert named_topics([DiagnosisContext(open_transaction(), log)]) == {"orders", "payments"}


def test_a_partition_is_read_from_before_the_oldest_of_the_open_records() -> None:
    """5 s before a broker's time ahead of them; from its beginning, if one of them has none."""
    one, older = (
        DiagnosisContext(open_transaction(), LogEvidence(excerpts={HERE: excerpt(before, data(100))}))
        for before in (marker(99, COMMIT, second=60), marker(99, COMMIT, second=50))
    )
    assert opened_after([one, older]) == opened_after([older, one]) == at(45)
    assert opened_after([one]) == at(55)
    assert opened_after([one, DiagnosisContext(open_transaction(), None)]) is None


def test_the_logs_to_read_for_open_transactions() -> None:
    """Each partition from its lowest transaction on, the records of owners, and of producers that none owns."""
    leaders = [partition(log_start_offset=60), partition("payments", 3, log_start_offset=None)]
    nowhere = transaction(9, transactional_id="refunds-9", txn_state_partition=None, state="Empty")
    producers = [
        producer(7, start=120),
        producer(8, start=50),
        producer(9, start=130),
        producer(8, start=0, topic="payments", partition=3),
    ]
    unwritten = transaction(10, transactional_id="orders-10")
    one = observation(transaction(7), nowhere, unwritten, producers=producers, partitions=leaders)
    to_read = [each for opened in diagnose([one]).opened.values() for each in opened]
    selection = select_logs(to_read)
    assert {each.tp: (each.offset, each.producer_ids, each.leader) for each in selection.excerpts} == {
        HERE: (60, frozenset({7, 8, 9, 10}), leaders[0]),
        ELSEWHERE: (0, frozenset({8}), leaders[1]),
    }
    owned = {number: [each.txn.transactional_id for each in found] for number, found in selection.owned.items()}
    assert owned == {33: ["payments-7", "orders-10"], None: ["refunds-9"]}
    assert selection.producer_ids == {8}
    assert select_logs([]).excerpts == []
