"""The fake brokers: an answer that is put together is that of a real broker, and what no broker was asked fails."""

from __future__ import annotations

import pytest

from tests.corpus.conversation import INPUTS, SUFFIX, Conversation, RequestKey, Window
from tests.corpus.requests import ITEMS, answered_items, combined, decode_answer, decode_request, requested_items
from tests.corpus.wire import NotRecorded, replaying
from toolkit.config import ClientConfig
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient

EVERYDAY = ["2.8.2-everyday", "4.3.1-everyday"]


def load(name: str) -> Conversation:
    return Conversation.load(INPUTS / f"{name}{SUFFIX}")


@pytest.mark.parametrize("name", EVERYDAY)
def test_an_answer_made_of_its_items_is_what_the_broker_sent(name: str) -> None:
    apis = set()
    for key, answers in load(name).answers.items():
        for frame in {each.frame for each in answers if key.api in ITEMS and each.frame}:
            request = decode_request(key.api, key.version, key.body)
            sent, template = (decode_answer(key.api, key.version, frame) for _ in range(2))
            parts = answered_items(key.api, request, sent)
            items = list(requested_items(key.api, request))
            if items and parts.keys() == {*items}:
                apis.add(key.api)
                made = decode_answer(
                    key.api, key.version, combined(key.api, key.version, request, template, parts.__getitem__)
                )
                assert answered_items(key.api, request, made) == parts
                assert len(repr(made)) == len(repr(sent)), "nothing is left out or added"
    assert apis >= {2, 3, 32, 61}


def test_a_request_about_some_items_of_a_recorded_one_is_answered() -> None:
    conversation = load("4.3.1-everyday")
    ids = [each["transactional_id"] for each in conversation.facts["staged"]][3:0:-1]
    with replaying(conversation), BrokerClient(ClientConfig(conversation.facts["config"])) as client:
        answer = client.send_one(broker_client.DescribeTransactions(transactional_ids=ids), broker_id=1)
    assert [each.transactional_id for each in answer.transaction_states] == ids
    assert {each.error_code for each in answer.transaction_states} == {0}


def test_a_request_that_was_not_recorded_fails() -> None:
    conversation = load("4.3.1-everyday")
    with (
        pytest.raises(NotRecorded, match="nobody"),
        replaying(conversation),
        BrokerClient(ClientConfig(conversation.facts["config"])) as client,
    ):
        client.send([(1, broker_client.DescribeGroups(groups=["nobody", "else"]))])


def test_a_write_moves_the_conversation_on() -> None:
    conversation = load("4.3.1-everyday")
    offsets = next(key for key in conversation.answers if key.api == 2 and len(conversation.answers[key]) > 1)
    before, *_, after = conversation.answers[offsets]
    first, last = conversation.writes[0], conversation.writes[-1]
    assert found(conversation, offsets, Window(first, -1.0, first)) == before.frame
    assert found(conversation, offsets, Window(first, last, 1e9)) == after.frame


def found(conversation: Conversation, key: RequestKey, window: Window) -> bytes | None:
    answer = conversation.find(key, window)
    assert answer is not None
    return answer.frame
