"""What a coordinator says of a transactional id."""

from typing import Any

from toolkit.lab.clients import RequestRefused, coordinator, send_until_accepted
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient


def described_transaction(cluster: BrokerClient, transactional_id: str) -> Any:
    """Its state (DescribeTransactions), or None if the id is unknown."""
    try:
        described = send_until_accepted(
            cluster,
            lambda: broker_client.DescribeTransactions(transactional_ids=[transactional_id]),
            of=transactional_id,
            to=lambda: coordinator(cluster, transactional_id),
            codes=lambda message: [message.transaction_states[0].error_code],
        )
    except RequestRefused as refused:
        if refused.error == "TRANSACTIONAL_ID_NOT_FOUND":
            return None
        raise
    return described.transaction_states[0]
