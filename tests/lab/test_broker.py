"""Real brokers of every supported version: start, restart, failures, and cleanup."""

import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tests.brokers import by_tier
from tests.builders import create_topics, received
from tests.process import PATIENCE_S, is_listening, started
from toolkit.errors import LabError, NotFound, SetupError, UsageError
from toolkit.lab import Kafka
from toolkit.lab.broker import fetch_jars, free_ports
from toolkit.lab.clients import until

pytestmark = pytest.mark.lab

NO_CLIENT_LOGS: dict[str, str | int | float | bool] = {"log_level": 0}


def admin(kafka: Kafka, user: str | None = None) -> AdminClient:
    return AdminClient({**kafka.client_config(user), **NO_CLIENT_LOGS})


def commit_record(kafka: Kafka, topic: str, value: str) -> None:
    producer = Producer({**kafka.client_config(), **NO_CLIENT_LOGS, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value=value)
    producer.commit_transaction(30)


def read_committed(kafka: Kafka, topic: str, count: int) -> list[str]:
    """The values of a topic, once their markers are written: a commit returns before."""

    def read() -> list[str] | None:
        found = [(message.value() or b"").decode() for message in received(kafka, [(topic, 0)])]
        return found if len(found) >= count else None

    return until(read, awaited="committed records")


def meta_properties(kafka: Kafka) -> dict[str, str]:
    lines = (kafka.log_dirs[1] / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


VERSIONS = [*by_tier("2.8.2", "3.3.2", "3.9.2", "4.3.1"), pytest.param("3.5.2", marks=pytest.mark.full)]


def test_processes_with_one_seed_take_different_ports() -> None:
    """``--random-order`` seeds all workers alike; a client of one worker once connected to the broker of another."""
    ports = []
    state = random.getstate()
    try:
        for _ in range(2):
            random.seed(1)
            ports.append(free_ports(9))
    finally:
        random.setstate(state)
    assert ports[0] != ports[1]


def test_the_ports_of_a_broker_that_is_down_stay_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed broker could not start again, as another cluster had taken its port meanwhile."""
    with Kafka("4.3.1") as kafka:
        port = int(kafka.bootstrap_servers.rpartition(":")[2])
        kafka.kill(1)
        monkeypatch.setattr("toolkit.lab.broker.PORTS", [port])
        assert free_ports(1) == []
        kafka.start_broker(1)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_works_and_leaves_nothing_behind(version: str) -> None:
    with Kafka(version) as kafka:
        address, directory = kafka.bootstrap_servers, kafka.log_dirs[1]
        create_topics(kafka, "orders")
        commit_record(kafka, "orders", "paid")
        assert read_committed(kafka, "orders", 1) == ["paid"]
        assert (directory / "orders-0" / "00000000000000000000.log").stat().st_size > 0
        assert f"Kafka version: {version}" in kafka.logs(1, lines=10_000)
        kafka.kill(1)
        kafka.start_broker(1)
        assert kafka.bootstrap_servers == address
        commit_record(kafka, "orders", "paid again")
        assert read_committed(kafka, "orders", 2) == ["paid", "paid again"]
    assert not is_listening(address)
    assert not directory.parent.parent.exists()
    jars = fetch_jars(version)
    assert list(jars.parent.glob(f"{version}-java*.jsa")), "the next broker loads its classes from an archive"


def test_a_broker_restarts_with_its_data_and_a_new_cluster_starts_empty() -> None:
    kafka = Kafka(properties={"transaction.partition.verification.enable": False, "num.partitions": 3})
    with pytest.raises(LabError, match="not running"):
        _ = kafka.bootstrap_servers
    with kafka:
        assert kafka.start() is kafka
        broker = ConfigResource(ConfigResource.Type.BROKER, "1")
        client = admin(kafka)
        settings = client.describe_configs([broker])[broker].result(timeout=60)
        assert settings["transaction.partition.verification.enable"].value == "false"
        assert settings["num.partitions"].value == "3"
        assert settings["auto.create.topics.enable"].value == "false"
        assert settings["group.initial.rebalance.delay.ms"].value == "0"
        # With 3 s, the only broker was fenced on a busy machine, 41 times within half an hour.
        assert settings["broker.session.timeout.ms"].value == "60000"

        create_topics(kafka, "orders")
        commit_record(kafka, "orders", "paid")
        kafka.stop_broker(1)
        assert list((kafka.log_dirs[1] / "orders-0").glob("*.snapshot"))
        kafka.start_broker(1)
        kafka.start_broker(1)  # already running

        process = kafka.run_tool(
            "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", kafka.bootstrap_servers, "list"
        )
        assert process.returncode == 0, process.stderr
        header, line = (line.split() for line in process.stdout.splitlines())
        assert header == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
        assert (line[0], line[1], line[3]) == ("orders", "1", "CompleteCommit")

        with pytest.raises(NotFound, match=r"no broker 7; it has \[1\]"):
            kafka.kill(7)
        with pytest.raises(NotFound, match="no user 'alice'"):
            kafka.client_config("alice")
        before = meta_properties(kafka)
    kafka.stop()
    with kafka:
        assert "orders" not in admin(kafka).list_topics(timeout=60).topics
        after = meta_properties(kafka)
    assert after["node.id"] == before["node.id"] == "1"
    for name in ("cluster.id", "directory.id"):
        assert after[name] != before[name], "formatted storage is reused, with new ids"


@pytest.mark.parametrize(("version", "brokers"), [pytest.param("2.8.2", 1, marks=pytest.mark.full), ("4.3.1", 2)])
def test_users_log_in_and_need_acls(version: str, brokers: int) -> None:
    users = {"admin": 'a"d\\m;in =ü', "alice": "alice-secret"}
    with Kafka(version, brokers=brokers, users=users, super_users=["admin"]) as kafka:
        assert kafka.client_config()["sasl.username"] == "admin"
        create_topics(kafka, "orders")
        commit_record(kafka, "orders", "paid")
        assert read_committed(kafka, "orders", 1) == ["paid"]
        alice = admin(kafka, "alice")  # a client that nobody holds ends
        with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
            alice.create_topics([NewTopic("hers", 1, 1)])["hers"].result(60)
        assert "orders" not in alice.list_topics(timeout=30).topics
        with_wrong_password = AdminClient({**kafka.client_config("alice"), **NO_CLIENT_LOGS, "sasl.password": "wrong"})
        with pytest.raises(KafkaException):
            with_wrong_password.list_topics(timeout=3)


@pytest.mark.parametrize("sent_signal", [signal.SIGINT, signal.SIGKILL])
def test_the_broker_stops_with_its_python_process(sent_signal: signal.Signals) -> None:
    program = (
        "import signal\n"
        "from toolkit.lab import Kafka\n"
        "with Kafka() as kafka:\n"
        "    print(kafka.bootstrap_servers, kafka.log_dirs[1], flush=True)\n"
        "    signal.pause()\n"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout
        address, directory = child.stdout.readline().split()
        assert is_listening(address)
        child.send_signal(sent_signal)
        _, stderr = child.communicate(timeout=PATIENCE_S)
    assert child.returncode in (-sent_signal, 130)
    assert ("KeyboardInterrupt" in stderr) == (sent_signal == signal.SIGINT)
    assert "Warning" not in stderr
    until(lambda: not is_listening(address) or None, awaited="the end of the broker")
    until(lambda: not Path(directory).parent.parent.exists() or None, awaited="its folder to be gone")


@pytest.mark.parametrize(
    ("version", "properties", "message"),
    [
        ("4.3.1", {"unstable.api.versions.enable": "soon"}, r"could not format its storage.*unstable\.api\.versions"),
        ("4.3.1", {"log.retention.ms": "soon"}, r"ended with exit code 1.*log\.retention\.ms"),
        (
            "4.3.1",
            {"ssl.client.auth": "required", "listener.security.protocol.map": "CLIENT:SSL"},
            "No security protocol",
        ),
        ("3.5.2", {"metric.reporters": "nobody.Home"}, r"ended with exit code 1\. Its log says:\n.*nobody"),
    ],
)
def test_a_failed_start_shows_the_brokers_log(version: str, properties: dict[str, str], message: str) -> None:
    with pytest.raises(LabError, match=f"(?s)^Broker 1 of Kafka {version} .*{message}"):
        Kafka(version, properties=properties).start()


def test_a_broker_that_is_not_ready_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkit.lab.broker.is_ready", lambda *_: False)  # an idle machine needs a second
    with pytest.raises(LabError, match=r"^Broker 1 of Kafka 4.3.1 was not ready after 0.1 s\. "):
        Kafka(timeout=0.1).start()


@pytest.mark.full
def test_a_port_in_use_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    selected: list[list[int]] = []
    with socket.create_server(("127.0.0.1", 0)) as occupied:

        def ports_with_an_occupied_one(count: int) -> list[int]:
            selected.append(free_ports(count))
            if len(selected) == 1:
                selected[0][1] = occupied.getsockname()[1]
            return selected[-1]

        monkeypatch.setattr("toolkit.lab.broker.free_ports", ports_with_an_occupied_one)
        with Kafka("3.5.2") as kafka:
            assert kafka.bootstrap_servers == f"127.0.0.1:{selected[1][1]}"


def test_missing_java_is_reported_before_any_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("toolkit.java.find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"^The lab needs Java 17 or newer"):
        Kafka().start()


def test_the_exit_of_a_forked_child_does_not_stop_the_broker() -> None:
    program = (
        "import os, socket, sys\n"
        "from toolkit.lab import Kafka\n"
        "with Kafka('3.5.2') as kafka:\n"
        "    child = os.fork()\n"
        "    child or sys.exit()\n"
        "    os.waitpid(child, 0)\n"
        "    host, port = kafka.bootstrap_servers.split(':')\n"
        "    socket.create_connection((host, int(port))).close()\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"version": "4.3"}, "'4.3' is not a Kafka version"),
        ({"version": "2.7.2"}, "'2.7.2' is not a Kafka version"),
        ({"brokers": 4}, "1 to 3 brokers, not 4"),
        ({"super_users": ["admin"]}, "super_users names admin"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Kafka(**arguments)  # type: ignore[arg-type]
