"""Proof that nothing is hidden from this principal.

ListTransactions silently omits ids, Metadata topics, and ListGroups groups that a principal may not describe. Kafka's
own authorizers decide on a name only by the ACLs that match it: literal, prefixed, wildcard. So one probe per literal
and per prefix of any ACL, and one for all other names, cover every possible name.
"""

from __future__ import annotations

import uuid
from collections import Counter
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AclResource:
    """A resource type of ACLs, and the request whose answer says which names are denied to this principal.

    A broker checks authorization before it checks whether it coordinates a name.
    """

    type: int
    name: str
    request: Callable[[list[str]], Any]  # of some names
    codes: Callable[[Any], Iterable[tuple[str, int]]]  # names and error codes in an answer
    denied: str
    max_length: int | None = None


TRANSACTIONAL_IDS = AclResource(
    type=TRANSACTIONAL_ID,
    name="TransactionalId",
    request=lambda names: messages.DescribeTransactions(transactional_ids=names),
    codes=lambda answer: ((each.transactional_id, each.error_code) for each in answer.transaction_states),
    denied="TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
)
GROUPS = AclResource(
    type=GROUP,
    name="Group",
    request=lambda names: messages.DescribeGroups(groups=names),
    codes=lambda answer: ((each.group_id, each.error_code) for each in answer.groups),
    denied="GROUP_AUTHORIZATION_FAILED",
)
TOPICS = AclResource(
    type=TOPIC,
    name="Topic",
    request=lambda names: messages.Metadata(
        topics=[messages.Metadata.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    ),
    codes=lambda answer: ((each.name, each.error_code) for each in answer.topics),
    denied="TOPIC_AUTHORIZATION_FAILED",
    max_length=249,
)


def visibility_of(resource: AclResource, client: BrokerClient, brokers: Sequence[int]) -> Visibility:
    """Whether every `TRANSACTIONAL_IDS`, `GROUPS` or `TOPICS` of the cluster is visible to this principal."""
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
    """Names that at least one broker denies, or does not answer for."""
    some_names = [list(names[start : start + NAMES_PER_REQUEST]) for start in range(0, len(names), NAMES_PER_REQUEST)]
    responses = client.send([(broker, resource.request(some)) for broker in brokers for some in some_names])
    _raise_first(responses)
    visible: Counter[str] = Counter()
    for response in responses:
        visible.update({name for name, code in resource.codes(response.message) if error_name(code) != resource.denied})
    return {name for name in names if visible[name] < len(brokers)}


def _raise_first(responses: Iterable[BrokerResponse]) -> None:
    for response in responses:
        if response.error:
            raise response.error
