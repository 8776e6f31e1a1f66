"""Proof that nothing is hidden from this principal.

ListTransactions silently omits ids, Metadata topics, and ListGroups groups that a principal may not describe. Kafka's
own authorizers decide on a name only by the ACLs that match it: literal, prefixed, wildcard. So one probe per literal
and per prefix of any ACL, and one for all other names, cover every possible name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.errors import BrokerError, ConnectionFailed
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_name
from toolkit.sources.live.state.broker_configs import broker_configs

MAX_PROBES = 10_000
NAMES_PER_REQUEST = 2000
ANY, LITERAL = 1, 3
TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
MAX_TOPIC_LENGTH = 249
AUTHORIZER = "authorizer.class.name"
KAFKA_AUTHORIZERS = {
    "kafka.security.auth.SimpleAclAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}


@dataclass(frozen=True, slots=True)
class Visibility:
    """Proofs that everything is visible, and gaps in them; without gaps everything is."""

    proofs: Sequence[str]
    gaps: Sequence[str]


@dataclass(frozen=True, slots=True)
class AclResource:
    """A resource type of ACLs: number, name, and a function that returns the names denied to this principal."""

    type: int
    name: str
    denied: Callable[[BrokerClient, int, Sequence[str]], set[str]]
    max_length: int | None = None


def transactional_ids_are_visible(client: BrokerClient, brokers: Iterable[int]) -> Visibility:
    """Whether every transactional id is visible to this principal."""
    return _prove(client, list(brokers), AclResource(TRANSACTIONAL_ID, "TransactionalId", _denied_ids))


def topics_are_visible(client: BrokerClient, brokers: Iterable[int]) -> Visibility:
    """Whether every topic is visible to this principal."""
    return _prove(client, list(brokers), AclResource(TOPIC, "Topic", _denied_topics, MAX_TOPIC_LENGTH))


def groups_are_visible(client: BrokerClient, brokers: Iterable[int]) -> Visibility:
    """Whether every consumer group is visible to this principal."""
    return _prove(client, list(brokers), AclResource(GROUP, "Group", _denied_groups))


def _prove(client: BrokerClient, brokers: Sequence[int], resource: AclResource) -> Visibility:
    try:
        return _check(client, brokers, resource)
    except (BrokerError, ConnectionFailed) as exc:
        return Visibility([], [f"a proof that no {resource.name} is hidden from this principal: {exc}"])


def _check(client: BrokerClient, brokers: Sequence[int], resource: AclResource) -> Visibility:
    acls = _acls(client, brokers, resource.type)
    with_authorizer = [broker for broker, response in acls if _code(response) != "SECURITY_DISABLED"]
    if not with_authorizer:
        return Visibility(["no broker has an authorizer, so nothing is hidden"], [])
    if _probe(client, with_authorizer, resource, [uuid.uuid4().hex]):
        return Visibility([], [f"DESCRIBE on {resource.name} '*' for this principal" + _or_read_the_log(resource)])
    unread = [response for _, response in acls if _code(response) not in {"NONE", "SECURITY_DISABLED"}]
    if unread:
        return Visibility([], [_no_acls(resource, unread[0])])
    if gap := _foreign_authorizer(client, with_authorizer, resource):
        return Visibility([], [gap])
    probes = dict(_probes(resource, [response for _, response in acls]))
    if len(probes) > MAX_PROBES:
        too_many = f"a proof that no {resource.name} is hidden: its {len(probes)} ACLs are too many to check"
        return Visibility([], [too_many])
    if denied := _probe(client, with_authorizer, resource, list(probes)):
        or_log = _or_read_the_log(resource)
        return Visibility([], [f"DESCRIBE on {probes[name]} for this principal" + or_log for name in sorted(denied)])
    return Visibility([f"the ACLs hide no {resource.name} from this principal ({len(probes) + 1} probes)"], [])


def _acls(client: BrokerClient, brokers: Sequence[int], resource_type: int) -> list[tuple[int, BrokerResponse]]:
    """The brokers' DescribeAcls responses; those of the others suffice if a broker fails.

    Raises BrokerError or ConnectionFailed if no broker answers.
    """
    request = messages.DescribeAcls(
        resource_type_filter=resource_type,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    responses = client.send([(broker, request) for broker in brokers])
    answered = [(broker, response) for broker, response in zip(brokers, responses, strict=True) if not response.error]
    if not answered:
        _raise_first(responses)
    return answered


def _code(response: BrokerResponse) -> str:
    return error_name(response.message.error_code)


def _no_acls(resource: AclResource, response: BrokerResponse) -> str:
    gap = f"a proof that no {resource.name} is hidden from this principal"
    if _code(response) == "CLUSTER_AUTHORIZATION_FAILED":
        gap += ": DESCRIBE and DESCRIBE_CONFIGS on Cluster, to check it by the ACLs"
    else:
        gap += f": the ACLs of broker {response.broker_id} ({_code(response)})"
    return gap + _or_read_the_log(resource)


def _or_read_the_log(resource: AclResource) -> str:
    return "; or READ on Topic '__transaction_state'" if resource.type == TRANSACTIONAL_ID else ""


def _foreign_authorizer(client: BrokerClient, brokers: Sequence[int], resource: AclResource) -> str | None:
    """The gap if an authorizer other than Kafka's decides, or its class may not be read."""
    gap = f"a proof that no {resource.name} is hidden from this principal"
    for broker, config in zip(brokers, broker_configs(client, brokers, [AUTHORIZER]), strict=True):
        if config.error:
            gap += f": DESCRIBE_CONFIGS on Cluster, to know the authorizer of broker {broker}"
            return gap + _or_read_the_log(resource)
        name = config.values.get(AUTHORIZER)
        if name not in KAFKA_AUTHORIZERS:
            return f"{gap}: broker {broker} has a third-party authorizer ({name})" + _or_read_the_log(resource)
    return None


def _probes(resource: AclResource, responses: Iterable[BrokerResponse]) -> Iterator[tuple[str, str]]:
    """Probe name and what it covers, for each literal and each prefix of an ACL."""
    for response in responses:
        for acl in response.message.resources:
            if acl.pattern_type != LITERAL:
                suffix = uuid.uuid4().hex[:12]
                name = acl.resource_name + suffix
                yield name[: resource.max_length], f"{resource.name} prefix '{acl.resource_name}' (or on '*')"
            elif acl.resource_name != "*":
                yield acl.resource_name, f"{resource.name} '{acl.resource_name}' (or on '*')"


def _probe(client: BrokerClient, brokers: Sequence[int], resource: AclResource, names: Sequence[str]) -> set[str]:
    """Names that at least one broker denies."""
    return {name for broker in brokers for name in resource.denied(client, broker, names)}


def _denied_ids(client: BrokerClient, broker: int, names: Sequence[str]) -> set[str]:
    answers = _answers(client, broker, names, lambda some: messages.DescribeTransactions(transactional_ids=some))
    return {
        state.transactional_id
        for answer in answers
        for state in answer.transaction_states
        if error_name(state.error_code) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    }


def _denied_groups(client: BrokerClient, broker: int, names: Sequence[str]) -> set[str]:
    answers = _answers(client, broker, names, lambda some: messages.DescribeGroups(groups=some))
    return {
        group.group_id
        for answer in answers
        for group in answer.groups
        if error_name(group.error_code) == "GROUP_AUTHORIZATION_FAILED"
    }


def _denied_topics(client: BrokerClient, broker: int, names: Sequence[str]) -> set[str]:
    def request(some: Sequence[str]) -> Any:
        topics = [messages.Metadata.MetadataRequestTopic(name=name) for name in some]
        return messages.Metadata(topics=topics, allow_auto_topic_creation=False)

    return {
        topic.name
        for answer in _answers(client, broker, names, request)
        for topic in answer.topics
        if error_name(topic.error_code) == "TOPIC_AUTHORIZATION_FAILED"
    }


def _answers(
    client: BrokerClient, broker: int, names: Sequence[str], request: Callable[[Sequence[str]], Any]
) -> list[Any]:
    """What a broker answers about names; it checks authorization before it checks whether it coordinates them."""
    some_names = (list(names[start : start + NAMES_PER_REQUEST]) for start in range(0, len(names), NAMES_PER_REQUEST))
    responses = client.send([(broker, request(some)) for some in some_names])
    _raise_first(responses)
    return [response.message for response in responses]


def _raise_first(responses: Iterable[BrokerResponse]) -> None:
    for response in responses:
        if response.error:
            raise response.error
