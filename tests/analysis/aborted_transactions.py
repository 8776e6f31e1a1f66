"""The aborted transactions that a log's own batches give, as the broker writes them into the ``.txnindex``."""

import numpy as np

from toolkit.analysis.log.log_transactions import LogTransactions, lso_steps
from toolkit.formats.headers import ABORT


def aborted_transactions(log_transactions: LogTransactions) -> list[tuple[int, int, int, int]]:
    """Producer id, first offset, marker's offset and LSO right after it of each with data, in the order of the markers.

    The LSO is that of the steps (``ProducerStateManager.lastStableOffset``).
    """
    steps = lso_steps(log_transactions, log_end_offset=None)
    found = log_transactions[log_transactions["outcome"] == ABORT]
    rows = []
    for row in found[np.argsort(found["marker_offset"], kind="stable")]:
        log_end = int(row["marker_offset"]) + 1
        last = int(np.searchsorted(steps["offset"], log_end, side="right")) - 1
        holder = int(steps["holder_first_offset"][last]) if last >= 0 else -1
        rows.append((int(row["producer_id"]), int(row["first_offset"]), log_end - 1, log_end if holder < 0 else holder))
    return rows
