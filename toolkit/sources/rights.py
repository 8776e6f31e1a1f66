"""Proof that nothing is hidden from this principal.

ListTransactions leaves out ids, and Metadata leaves out topics, that a principal may not describe, and says nothing
(DOMAIN.md P1). With Kafka's own authorizers the answer for a name depends on nothing but the ACLs that match it: a
literal one, prefixed ones, the wildcard. So one probe per literal and per prefix that any ACL names, and one for all
other names, stand for every name there can be.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from toolkit.errors import BrokerError, ConnectionFailed
from toolkit.sources import wire as kafka
from toolkit.sources.wire import Answer, Wire, error_name

__all__ = ["Proof", "topics_are_visible", "transactional_ids_are_visible"]

MOST_PROBES = 10_000
NAMES_PER_REQUEST = 2000
ANY, LITERAL, BROKER = 1, 3, 4
TOPIC, TRANSACTIONAL_ID = 2, 5
LONGEST_TOPIC = 249
KAFKAS_OWN = {
    "kafka.security.auth.SimpleAclAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether everything is visible: how that was shown, and what is missing for it; no gap means yes."""

    proofs: Sequence[str]
    gaps: Sequence[str]


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of thing that ACLs are about: its number, its name, and how to find out which names are refused."""

    type: int
    name: str
    refused: Callable[[Wire, int, Sequence[str]], set[str]]
    longest: int | None = None


def transactional_ids_are_visible(wire: Wire, brokers: Iterable[int]) -> Proof:
    """Whether every transactional id would be listed to this principal."""
    return _prove(wire, list(brokers), Resource(TRANSACTIONAL_ID, "TransactionalId", _refused_ids))


def topics_are_visible(wire: Wire, brokers: Iterable[int]) -> Proof:
    """Whether every topic would be shown to this principal."""
    return _prove(wire, list(brokers), Resource(TOPIC, "Topic", _refused_topics, LONGEST_TOPIC))


def _prove(wire: Wire, brokers: Sequence[int], resource: Resource) -> Proof:
    try:
        return _judge(wire, brokers, resource)
    except (BrokerError, ConnectionFailed) as exc:
        return Proof([], [f"a proof that no {resource.name} is hidden from this principal: {exc}"])


def _judge(wire: Wire, brokers: Sequence[int], resource: Resource) -> Proof:
    acls = _acls(wire, brokers, resource.type)
    guarded = [broker for broker, answer in acls if _code(answer) != "SECURITY_DISABLED"]
    if not guarded:
        return Proof(["no broker has an authorizer, so nothing is hidden"], [])
    if _probe(wire, guarded, resource, [uuid.uuid4().hex]):
        return Proof([], [f"DESCRIBE on {resource.name} '*' for this principal" + _or_read_the_log(resource)])
    unread = [answer for _, answer in acls if _code(answer) not in {"NONE", "SECURITY_DISABLED"}]
    if unread:
        return Proof([], [_no_acls(resource, unread[0])])
    if doubt := _foreign_authorizer(wire, guarded, resource):
        return Proof([], [doubt])
    probes = dict(_probes(resource, [answer for _, answer in acls]))
    if len(probes) > MOST_PROBES:
        return Proof([], [f"a proof that no {resource.name} is hidden: its {len(probes)} ACLs are too many to check"])
    if refused := _probe(wire, guarded, resource, list(probes)):
        instead = _or_read_the_log(resource)
        return Proof([], [f"DESCRIBE on {probes[name]} for this principal" + instead for name in sorted(refused)])
    return Proof([f"the ACLs hide no {resource.name} from this principal ({len(probes) + 1} probes)"], [])


def _acls(wire: Wire, brokers: Sequence[int], resource_type: int) -> list[tuple[int, Answer]]:
    """What the brokers answer to DescribeAcls; one that does not answer hides nothing that another would show.

    Raises
    ------
    BrokerError, ConnectionFailed
        If none answers.
    """
    request = kafka.DescribeAcls(
        resource_type_filter=resource_type,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answers = wire.send([(broker, request) for broker in brokers])
    answered = [(broker, answer) for broker, answer in zip(brokers, answers, strict=True) if not answer.error]
    if not answered:
        _raise_first(answers)
    return answered


def _code(answer: Answer) -> str:
    return error_name(answer.message.error_code)


def _no_acls(resource: Resource, answer: Answer) -> str:
    wanted = f"a proof that no {resource.name} is hidden from this principal"
    if _code(answer) == "CLUSTER_AUTHORIZATION_FAILED":
        wanted += ": DESCRIBE and DESCRIBE_CONFIGS on Cluster, to check it by the ACLs"
    else:
        wanted += f": the ACLs of broker {answer.broker_id} ({_code(answer)})"
    return wanted + _or_read_the_log(resource)


def _or_read_the_log(resource: Resource) -> str:
    return "; or READ on Topic '__transaction_state'" if resource.type == TRANSACTIONAL_ID else ""


def _foreign_authorizer(wire: Wire, brokers: Sequence[int], resource: Resource) -> str | None:
    """What speaks against judging by ACLs: an authorizer that may have rules of its own, or that may not be known."""
    config = kafka.DescribeConfigs
    asked = config.DescribeConfigsResource
    answers = wire.send(
        [
            (
                broker,
                config(
                    resources=[
                        asked(
                            resource_type=BROKER,
                            resource_name=str(broker),
                            configuration_keys=["authorizer.class.name"],
                        )
                    ]
                ),
            )
            for broker in brokers
        ]
    )
    wanted = f"a proof that no {resource.name} is hidden from this principal"
    for broker, answer in zip(brokers, answers, strict=True):
        if answer.error or answer.message.results[0].error_code:
            return (
                f"{wanted}: DESCRIBE_CONFIGS on Cluster, to know the authorizer of broker {broker}"
                + _or_read_the_log(resource)
            )
        name = next((entry.value for entry in answer.message.results[0].configs), None)
        if name not in KAFKAS_OWN:
            return f"{wanted}: broker {broker} has an authorizer of its own ({name})" + _or_read_the_log(resource)
    return None


def _probes(resource: Resource, answers: Iterable[Answer]) -> Iterator[tuple[str, str]]:
    """Probe to the words for what it stands for, one for each literal and each prefix that an ACL names."""
    for answer in answers:
        for acl in answer.message.resources:
            if acl.pattern_type != LITERAL:
                suffix = uuid.uuid4().hex[:12]
                name = acl.resource_name + suffix
                yield name[: resource.longest], f"{resource.name} prefix '{acl.resource_name}' (or on '*')"
            elif acl.resource_name != "*":
                yield acl.resource_name, f"{resource.name} '{acl.resource_name}' (or on '*')"


def _probe(wire: Wire, brokers: Sequence[int], resource: Resource, names: Sequence[str]) -> set[str]:
    """Names that at least one broker refuses to describe."""
    return {name for broker in brokers for name in resource.refused(wire, broker, names)}


def _refused_ids(wire: Wire, broker: int, names: Sequence[str]) -> set[str]:
    """Any broker decides this before it looks whether it is the coordinator of the id."""
    answers = wire.send(
        [(broker, kafka.DescribeTransactions(transactional_ids=list(batch))) for batch in _batches(names)]
    )
    _raise_first(answers)
    return {
        state.transactional_id
        for answer in answers
        for state in answer.message.transaction_states
        if error_name(state.error_code) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    }


def _refused_topics(wire: Wire, broker: int, names: Sequence[str]) -> set[str]:
    named = kafka.Metadata.MetadataRequestTopic
    answers = wire.send(
        [
            (broker, kafka.Metadata(topics=[named(name=name) for name in batch], allow_auto_topic_creation=False))
            for batch in _batches(names)
        ]
    )
    _raise_first(answers)
    return {
        topic.name
        for answer in answers
        for topic in answer.message.topics
        if error_name(topic.error_code) == "TOPIC_AUTHORIZATION_FAILED"
    }


def _raise_first(answers: Iterable[Answer]) -> None:
    for answer in answers:
        if answer.error:
            raise answer.error


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), NAMES_PER_REQUEST):
        yield names[start : start + NAMES_PER_REQUEST]
