"""What a request asks, whatever the order of its items; and the answer to one from answers to others."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import kafka.protocol
from kafka.protocol.api_message import ApiMessage

from toolkit.sources.live import broker_client

CLIENT_ID = "kafka-txn-toolkit"
IGNORED = {"max_bytes", "max_wait_ms", "min_bytes", "partition_max_bytes", "timeout_ms"}
"""Fields that do not change what is answered."""


@cache
def message_classes() -> Mapping[tuple[int, str], Any]:
    """The classes of requests and responses, by API key and type."""
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            importlib.import_module(module.name)
    found: dict[tuple[int, str], Any] = {}
    for each in (*ApiMessage.__subclasses__(), broker_client.DescribeShareGroupOffsetsRequest):
        if each.API_KEY is not None and each.__module__.startswith(("kafka.", broker_client.__name__)):
            found.setdefault((each.API_KEY, each.type), each)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Where an API has its items: in the request, and in the response, with what names them."""

    requested: Sequence[str]  # attributes that lead to the items
    answered: Sequence[str]
    names: Sequence[Sequence[str]]  # what names an item in each of these lists; nothing for a plain value
    answered_names: Sequence[Sequence[str]]


ITEMS: Mapping[int, Items] = {
    2: Items(requested=["topics", "partitions"], answered=["topics", "partitions"],
        names=[["name"], ["partition_index"]], answered_names=[["name"], ["partition_index"]]),
    3: Items(requested=["topics"], answered=["topics"], names=[["name"]], answered_names=[["name"]]),
    9: Items(requested=["groups"], answered=["groups"], names=[["group_id"]], answered_names=[["group_id"]]),
    10: Items(requested=["coordinator_keys"], answered=["coordinators"], names=[[]], answered_names=[["key"]]),
    15: Items(requested=["groups"], answered=["groups"], names=[[]], answered_names=[["group_id"]]),
    32: Items(requested=["resources"], answered=["results"], names=[["resource_type", "resource_name"]],
        answered_names=[["resource_type", "resource_name"]]),
    61: Items(requested=["topics", "partition_indexes"], answered=["topics", "partitions"], names=[["name"], []],
        answered_names=[["name"], ["partition_index"]]),
    65: Items(requested=["transactional_ids"], answered=["transaction_states"], names=[[]],
        answered_names=[["transactional_id"]]),
}  # fmt: skip
"""By API key: ListOffsets, Metadata, OffsetFetch, FindCoordinator, DescribeGroups, DescribeConfigs, DescribeProducers,
DescribeTransactions."""


@cache
def decode_request(api: int, version: int, body: bytes) -> Any:
    """The message of a request without size and correlation id."""
    frame = api.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + body
    return message_classes()[api, "request"].decode(frame, version=version, header=True)


def decode_answer(api: int, version: int, frame: bytes) -> Any:
    """The message of an answer without size and correlation id."""
    return message_classes()[api, "response"].decode(bytes(4) + frame, version=version, header=True)


def encode_answer(message: Any, version: int) -> bytes:
    """The answer without size and correlation id."""
    message._header = None  # a decoded one refuses a version
    message.API_VERSION = version
    message.with_header(correlation_id=0)
    return bytes(message.encode(header=True, framed=True))[8:]


def unavailable_offsets(request: Any, version: int) -> bytes:
    """That the coordinator does not answer now: which groups wait behind what was live was not asked of each then."""
    response, code = message_classes()[9, "response"], 15  # COORDINATOR_NOT_AVAILABLE
    if version < 8:
        return encode_answer(response(version=version, topics=[], error_code=code), version)
    group = response.OffsetFetchResponseGroup
    names = [each.group_id for each in request.groups]
    groups = [group(version=version, group_id=each, topics=[], error_code=code) for each in names]
    return encode_answer(response(version=version, groups=groups), version)


@cache
def question(api: int, version: int, body: bytes) -> str:
    """What a request asks, with its items in order."""
    return repr(_plain(decode_request(api, version, body)))


def _plain(value: Any) -> Any:
    if hasattr(value, "_struct"):
        version = value.version
        return tuple(
            (name, _plain(getattr(value, name)))
            for name, declared in value.fields.items()
            if name not in IGNORED and (version is None or declared.for_version_q(version))
        )
    if isinstance(value, list | tuple):
        return tuple(sorted(map(_plain, value), key=repr))
    return bytes(value) if isinstance(value, memoryview) else value


def context_of(api: int, request: Any) -> str:
    """What a request asks of each of its items."""
    first = ITEMS[api].requested[0]
    return repr([(name, value) for name, value in _plain(request) if name != first])


Item = tuple[tuple[Any, ...], Any]
"""What names an item, and all that is asked of it."""


def requested_items(api: int, request: Any) -> Iterator[Item]:
    """The items of a request."""
    where = ITEMS[api]
    for outer in getattr(request, where.requested[0]) or ():
        name = _name(outer, where.names[0])
        if len(where.requested) == 1:
            yield name, _plain(outer)
            continue
        for inner in getattr(outer, where.requested[1]):
            yield name + _name(inner, where.names[1]), _plain(inner)


def _name(value: Any, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(getattr(value, name) for name in names) if names else (value,)


def answered_items(api: int, request: Any, answer: Any) -> Mapping[Item, Any]:
    """The answer to each item of a request."""
    found: dict[tuple[Any, ...], Any] = {}
    where = ITEMS[api]
    for outer in getattr(answer, where.answered[0]):
        name = _name(outer, where.answered_names[0])
        if len(where.answered) == 1:
            found[name] = outer
            continue
        for inner in getattr(outer, where.answered[1]):
            found[name + _name(inner, where.answered_names[1])] = inner
    return {item: found[item[0]] for item in requested_items(api, request) if item[0] in found}


def combined(api: int, version: int, request: Any, template: Any, parts: Callable[[Item], Any]) -> bytes:
    """An answer to all items of a request, from the answers to each of them."""
    where = ITEMS[api]
    outer_list: list[Any] = []
    for item in requested_items(api, request):
        part = parts(item)
        if len(where.answered) == 1:
            outer_list.append(part)
            continue
        (topic, *_), _ = item
        if not outer_list or outer_list[-1].name != topic:
            outer = type(getattr(template, where.answered[0])[0])(version=version, name=topic)
            setattr(outer, where.answered[1], [])
            outer_list.append(outer)
        getattr(outer_list[-1], where.answered[1]).append(part)
    setattr(template, where.answered[0], outer_list)
    return encode_answer(template, version)
