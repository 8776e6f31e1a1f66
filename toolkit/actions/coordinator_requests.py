"""What a fence and a commit share: the coordinator of a transactional id, its state, and a request that it answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from toolkit.errors import BrokerError, NotFound
from toolkit.schema.actions import ActionStep
from toolkit.schema.live import EvidenceEntry, Transaction
from toolkit.schema.table import Error
from toolkit.sources.live.client.broker_response import error_text
from toolkit.sources.live.state.coordinators import TRANSACTION, find_coordinators

if TYPE_CHECKING:
    from toolkit.actions.progress import Progress
    from toolkit.analysis.diagnosis.clocks import BrokersTime
    from toolkit.formats.flink_checkpoint import Committable
    from toolkit.sources.live.cluster import Cluster

NOTHING_SENT = "Nothing was sent."
RIGHT_NEEDED = "The principal needs WRITE on the transactional id."
PASSING = {"CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
POLL_S = 0.1
ENDED = {"Empty", "CompleteAbort", "CompleteCommit"}


def describe_owner(cluster: Cluster, transactional_id: str) -> Transaction:
    """The coordinator's state of an id.

    Raises NotFound if the cluster has no such id. Raises BrokerError if its coordinator does not describe it.
    """
    (row,) = cluster.transaction_rows(transactional_ids=[transactional_id])
    owner = Transaction.of(row)
    if owner.error:
        code = Error.of(owner.error).code
        if code == "TRANSACTIONAL_ID_NOT_FOUND":
            raise NotFound(f"There is no transactional id {transactional_id!r}.", means="It never was, or has expired.")
        raise BrokerError(f"{transactional_id!r} could not be described: {owner.error}.", code=code)
    return owner


def coordinator_of(cluster: Cluster, transactional_id: str) -> int | str:
    """Broker id of an id's coordinator, or the error."""
    ((answer, found),) = find_coordinators(cluster.client, [transactional_id], TRANSACTION)
    if found is None or found.error_code:
        return str(answer.error_text or error_text(found.error_code))
    return int(found.node_id)


def send_until_decided(
    cluster: Cluster, transactional_id: str, progress: Progress, send: Callable[[int], str], *, refused: Container[str]
) -> str:
    """The coordinator's answer, once it is not one that passes by itself: a loading, a marker being written.

    `cluster`, `transactional_id`: where the id is known, and the id.
    `progress`: the steps; nothing was written if no answer leaves it open.
    `send`: sends the request to a broker, and returns ``NONE`` or the error.
    `refused`: errors of the request after which it has had no effect.
    """
    deadline = time.monotonic() + cluster.timeout
    may_have_effect = False
    while True:
        coordinator = progress.wait(partial(coordinator_of, cluster, transactional_id))
        if isinstance(coordinator, int):
            progress.sending()
            response = progress.wait(partial(send, coordinator))
            may_have_effect |= Error.of(response).code not in refused
        else:
            response = coordinator
        if Error.of(response).code not in PASSING or time.monotonic() > deadline:
            break
        progress.check_cancelled()
        threading.Event().wait(POLL_S)
    if not may_have_effect:
        progress.effect = "nothing"
    return response


def check_response(response: str, *, request: str) -> None:
    """Check a coordinator's answer, ``NONE`` or an error.

    `request`: what was to be done: ``fence 'payments-7'``. Raises BrokerError if it is an error.
    """
    code = Error.of(response).code
    if code != "NONE":
        raise BrokerError(
            f"The coordinator refused to {request}: {response.rstrip('.')}.",
            code=code,
            do=RIGHT_NEEDED if code.endswith("AUTHORIZATION_FAILED") else "",
        )


def owner_step(
    action: str,
    cluster: Cluster,
    transactional_id: str,
    owner: Transaction | Committable,
    *,
    verdict: str | None = None,
) -> ActionStep:
    """What every line of the audit trail has of an action on an id, and the verdict of its check, if any."""
    return ActionStep(
        action=action,
        bootstrap_servers=cluster.bootstrap_servers,
        target=transactional_id,
        transactional_id=transactional_id,
        producer_id=owner.producer_id,
        producer_epoch=owner.producer_epoch,
        verdict=verdict,
    )


def owner_evidence(owner: Transaction, brokers_time: BrokersTime | None = None) -> tuple[EvidenceEntry, ...]:
    """What the fresh check found, as the evidence column has it."""
    values = {
        "state": owner.state,
        "producer_id": owner.producer_id,
        "producer_epoch": owner.producer_epoch,
        "timeout_ms": owner.timeout_ms,
        "start_time": owner.start_time,
        "brokers_time": None if brokers_time is None else brokers_time.text,
        "topic_partitions": ", ".join(f"{topic}-{number}" for topic, number in owner.topic_partitions or ()),
    }
    source = EvidenceEntry(source=owner.source, broker_id=owner.broker_id, observed_at=owner.observed_at)
    return tuple(replace(source, name=name, value=str(each)) for name, each in values.items() if each is not None)
