"""What an abort marker changes for consumers: every kind of batch behind the transaction's start."""

from tests.analysis.logged import data, headers, marker
from toolkit.analysis.diagnosis.causes import abort_effects
from toolkit.formats.headers import ABORT, COMMIT


def test_own_records_are_dropped_and_ended_ones_up_to_the_next_lso_released() -> None:
    batches = headers(
        data(100, records=3),
        data(103, pid=1, records=2),
        marker(105, COMMIT, pid=1),
        data(106, pid=1, records=4),
        marker(110, ABORT, pid=1),
        data(111, pid=-1, attributes=0),
        data(112, pid=-1, attributes=0) | {"record_count": 0},  # all of its records were compacted
        data(113, records=5),
        data(118) | {"record_count": 0},
        data(119, pid=5),
        data(120, pid=3, records=2),
        data(122, pid=1, records=6),
        marker(128, COMMIT, pid=1),
        marker(129, COMMIT, pid=5),
    )
    effects = abort_effects(batches, producer_id=7, start_offset=100, last_stable_offset=100, next_stable_offset=120)
    assert effects == (8, 2 + 1 + 1)


def test_behind_an_earlier_transaction_nothing_is_released() -> None:
    """The producer's own earlier transaction is committed: none of its records is dropped."""
    batches = headers(
        data(90, pid=2, records=1), data(91, records=2), marker(93, COMMIT), data(94, pid=-1, attributes=0),
        data(100, records=3),
    )  # fmt: skip
    effects = abort_effects(batches, producer_id=7, start_offset=100, last_stable_offset=90, next_stable_offset=90)
    assert effects == (3, 0)
