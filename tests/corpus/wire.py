"""The seam of the client: the socket under it. One records what real brokers answer, one plays it again."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import selectors
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import kafka.errors
from kafka.net import manager
from kafka.net.selector import NetworkSelector

from tests.corpus.clocks import controlled, numbered_uuids
from tests.corpus.conversation import LIST_TRANSACTIONS, OFFSET_FETCH, WRITES, Conversation, RequestKey, Window
from tests.corpus.requests import decode_answer, decode_request, encode_answer, unavailable_offsets
from toolkit.actions import transaction
from toolkit.sources.live import coordinators
from toolkit.sources.live.transactions import CommittedRead, read_committed

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SILENCE = 1.0  # seconds, of a broker that does not answer
BEGAN = 1_000.0  # by the monotonic clock


def frames(buffer: bytearray) -> Iterator[bytes]:
    """Complete frames at the start of a buffer, which are taken from it."""
    while len(buffer) >= 4 and len(buffer) >= 4 + (size := struct.unpack_from(">i", buffer)[0]):
        yield bytes(buffer[: 4 + size])
        del buffer[: 4 + size]


class Recorder:
    """Adds to a conversation what brokers answer."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self._began = time.monotonic() - (time.time() - conversation.started_ms / 1000)
        self._lock = threading.Lock()
        self.open_sockets: list[RecordedSocket] = []

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def answered(self, key: RequestKey, frame: bytes | None) -> None:
        """Keep an answer."""
        with self._lock:
            self.conversation.add(key, self.now, frame)

    def connected(self, address: str, error: str | None) -> None:
        """Keep whether a broker accepted a connection."""
        with self._lock:
            known = self.conversation.refused.setdefault(address, [])
            if not known or known[-1][1] != error:
                known.append((round(self.now, 3), error))


class RecordedSocket:
    """A socket whose frames are kept."""

    def __init__(self, sock: Any, address: str, recorder: Recorder) -> None:
        self._sock, self._address, self._recorder = sock, address, recorder
        self._sent, self._received = bytearray(), bytearray()
        self._in_flight: list[tuple[RequestKey, float]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def send(self, data: bytes) -> int:
        sent = int(self._sock.send(data))
        self._sent += data[:sent]
        self._in_flight += [(RequestKey.of(self._address, each), self._recorder.now) for each in frames(self._sent)]
        return sent

    def recv(self, size: int) -> bytes:
        data = bytes(self._sock.recv(size))
        self._received += data
        for frame in frames(self._received):
            self._recorder.answered(self._in_flight.pop(0)[0], frame[8:])
        return data

    def close(self) -> None:
        for key, sent_at in self._in_flight:
            if self._recorder.now - sent_at > SILENCE:  # else nobody waits for the answer any more
                self._recorder.answered(key, None)
        self._in_flight = []
        self._sock.close()


@contextlib.contextmanager
def recording(conversation: Conversation) -> Iterator[Recorder]:
    """Keep what all clients of this process send and receive; names of probes are those that a replay uses."""
    recorder, connect = Recorder(conversation), manager.create_connection

    async def create_connection(net: Any, host: str, port: int, *args: Any, **options: Any) -> Any:
        address = f"{host}:{port}"
        try:
            sock = await connect(net, host, port, *args, **options)
        except kafka.errors.KafkaConnectionError as error:
            recorder.connected(address, str(error.args[0]))
            raise
        recorder.connected(address, None)
        return RecordedSocket(sock, address, recorder)

    def consume(config: Any, topic: str, partition: int, start: int, stop: int, **options: Any) -> CommittedRead:
        found = read_committed(config, topic, partition, start, stop, **options)
        conversation.consumed[f"{topic}-{partition} {start} {stop}"] = [list(found.offsets), found.reached]
        return found

    with (
        mock.patch.object(manager, "create_connection", create_connection),
        mock.patch.object(transaction, "read_committed", consume),
    ):
        yield recorder


@contextlib.contextmanager
def counted_probes() -> Iterator[None]:
    """Names of probes count from 1, so that requests are the same in each run."""
    with mock.patch.object(coordinators, "uuid", mock.Mock(uuid4=numbered_uuids())):
        yield


class NotRecorded(AssertionError):
    """The code asks what no broker was asked when the conversation was recorded."""


def filtered_transactions(key: RequestKey, conversation: Conversation, window: Window) -> bytes:
    """What a broker lists of some producers: of all that it listed. None was open for less than its timeout."""
    request = decode_request(key.api, key.version, key.body)
    for other in conversation.answers:
        if (other.address, other.api, other.version) == (key.address, key.api, key.version):
            unfiltered = decode_request(other.api, other.version, other.body)
            found = conversation.find(other, window)
            if not unfiltered.producer_id_filters and not unfiltered.state_filters and found and found.frame:
                answer = decode_answer(key.api, key.version, found.frame)
                listed = answer.transaction_states
                answer.transaction_states = [each for each in listed if each.producer_id in request.producer_id_filters]
                return encode_answer(answer, key.version)
    raise NotRecorded(f"{key.address} {request}")


class Replay:
    """A clock, and brokers that answer what they answered at that time."""

    def __init__(self, conversation: Conversation, at: float) -> None:
        self.conversation = conversation
        self.at = self.began = at
        self.last_write = max((each for each in conversation.writes if each < at), default=-1.0)
        self.silent: set[ReplayedSocket] = set()
        self.awaited = 0  # results of the network thread, which counts them itself
        self.failures: list[Exception] = []
        self._lock = threading.Lock()

    def now(self) -> dt.datetime:
        """This machine's time."""
        return EPOCH + dt.timedelta(milliseconds=self.conversation.started_ms, seconds=self.at)

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return BEGAN + self.at - self.began

    def wait(self, seconds: float) -> None:
        """Move the time."""
        with self._lock:
            self.at += max(0.0, seconds)

    @property
    def next_write(self) -> float:
        """When something is written next."""
        return min((each for each in self.conversation.writes if each > max(self.last_write, self.began)), default=1e9)

    def answer(self, key: RequestKey) -> bytes | None:
        """What the broker answers; null if it stays silent."""
        with self._lock:
            if key.api in WRITES:  # at the time of the first that was not yet written
                window = Window(max(self.began, self.last_write), max(self.began, self.last_write) + 1e-6, 1e9)
            else:
                window = Window(self.at, self.last_write, self.next_write)
            found = self.conversation.find(key, window)
            if found is None and key.api == LIST_TRANSACTIONS:
                return filtered_transactions(key, self.conversation, window)
            if found is None:
                request = decode_request(key.api, key.version, key.body)
                if key.api == OFFSET_FETCH:
                    return unavailable_offsets(request, key.version)
                raise NotRecorded(f"{key.address} {request}")
            if key.api in WRITES:
                self.last_write = found.at
        return found.frame

    def refusal(self, address: str) -> str | None:
        """Why the broker does not accept a connection; null if it does."""
        known = self.conversation.refused.get(address)
        if known is None:
            return "111 ECONNREFUSED"
        return next((error for at, error in reversed(known) if at <= self.at), known[0][1])


class ReplayedSocket:
    """A socket whose other end is a `Replay`: what is sent is answered at once."""

    def __init__(self, address: str, replay: Replay) -> None:
        self._address, self._replay = address, replay
        self._ready = os.eventfd(0, os.EFD_NONBLOCK)
        self._sent, self._to_read = bytearray(), bytearray()
        self._ended = False

    def fileno(self) -> int:
        return self._ready

    def getpeername(self) -> tuple[str, int]:
        host, port = self._address.rsplit(":", 1)
        return host, int(port)

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def send(self, data: bytes) -> int:
        self._sent += data
        for frame in frames(self._sent):
            try:
                answer = self._replay.answer(RequestKey.of(self._address, frame))
            except Exception as error:  # noqa: BLE001 - the client would take any for a failed connection
                self._replay.failures.append(error)
                self._ended = True
                os.eventfd_write(self._ready, 1)
                return len(data)
            if answer is None:
                self._replay.silent.add(self)
                continue
            self._to_read += struct.pack(">i", 4 + len(answer)) + frame[8:12] + answer
            os.eventfd_write(self._ready, 1)
        return len(data)

    def recv(self, size: int) -> bytes:
        if self._ended:
            return b""
        if not self._to_read:
            raise BlockingIOError
        data = bytes(self._to_read[:size])
        del self._to_read[:size]
        if not self._to_read:
            os.eventfd_read(self._ready)
        return data

    def shutdown(self, how: int) -> None:
        """Nothing more comes."""

    def close(self) -> None:
        self._replay.silent.discard(self)
        if self._ready >= 0:
            os.close(self._ready)
        self._ready = -1


def _selector(replay: Replay) -> Callable[[], selectors.BaseSelector]:
    """A selector that does not wait for silent brokers: the time goes to the next thing that is due.

    Only while somebody waits for the network thread, which would else race with the code that asks.
    """

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if found := super().select(0):
                return found
            if replay.awaited and replay.silent and timeout is not None:
                replay.wait(timeout)
                return []
            return super().select(timeout)

    return Selector


@contextlib.contextmanager
def replaying(conversation: Conversation, *, at: float = 0.0) -> Iterator[Replay]:
    """Clients of this process get the answers of a conversation, by its clock."""
    replay = Replay(conversation, at)

    async def create_connection(net: Any, host: str, port: int, *args: Any, **options: Any) -> Any:
        address = f"{host}:{port}"
        if error := replay.refusal(address):
            raise kafka.errors.KafkaConnectionError(error)
        return ReplayedSocket(address, replay)

    run = NetworkSelector.run

    def counted_run(net: Any, coro: Any, *args: Any) -> Any:
        async def counted() -> Any:
            replay.awaited += 1
            try:
                return await net._invoke(coro, *args)
            finally:
                replay.awaited -= 1

        return run(net, counted)

    def consume(config: Any, topic: str, partition: int, start: int, stop: int, **options: Any) -> CommittedRead:
        return CommittedRead(*conversation.consumed[f"{topic}-{partition} {start} {stop}"])

    with (
        controlled(replay),
        mock.patch.object(manager, "create_connection", create_connection),
        mock.patch.object(transaction, "read_committed", consume),
        mock.patch.object(NetworkSelector, "run", counted_run),
        mock.patch.dict(NetworkSelector.DEFAULT_CONFIG, selector=_selector(replay)),
    ):
        yield replay
    for error in replay.failures:
        raise error
