"""Credentials never show: not in plans, pages, logs, events, errors or checkpoints, under classic Spark and Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from tests.sources.test_outage import create, is_led
from tests.spark.rows import CLASSES
from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.errors import UsageError
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY
from toolkit.lab.producer import TxnProducer
from toolkit.lab.queries import until
from toolkit.spark.datasources.batches.batches_source import KafkaBatches
from toolkit.spark.datasources.client_options import client_config
from toolkit.spark.datasources.secret_options import connecting

ROOT = Path(__file__).resolve().parents[2]
USER, CANARY = "alice", "cAnArY-9f8e7d"
MEANT_TO_FAIL = {"a wrong column", "a wrong option", "a wrong value", "a failing task"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    users = {USER: CANARY}
    with Kafka("4.3.1", properties=EVERYDAY.properties, users=users, super_users=[USER]) as kafka:
        with Cluster(kafka.client_config(USER), timeout=20) as cluster:
            create(cluster.client, "watched", [[1]])
            until(lambda: is_led(cluster.client, "watched"), awaited="the leader of watched")
            TxnProducer(cluster.client, "watched").init().send("watched", 0)
        yield kafka


@pytest.fixture(scope="module", params=["connect", "classic"])
def found(request: pytest.FixtureRequest, guarded: Kafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    script = str(Path(__file__).with_name("canary.py"))
    command = [sys.executable, script, request.param, guarded.bootstrap_servers, USER, str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"CANARY": CANARY}, capture_output=True, text=True, timeout=1100
    )
    assert done.returncode == 0, done.stderr.replace(CANARY, "[the canary]")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["spark"].startswith(CLASSES[request.param])
    return answer | {"mode": request.param, "output": done.stdout + done.stderr}


@pytest.mark.lab
@pytest.mark.full
def test_a_password_appears_nowhere(found: dict[str, Any]) -> None:
    assert found["shown"] == {}
    assert CANARY not in found["output"]
    kinds = {location.split(" ")[0] for location in found["locations"]}
    assert kinds == {"result", "error", "output", "page", "file"}
    assert any("events/" in location for location in found["locations"])
    assert any("java.log" in location for location in found["locations"])
    assert any("checkpoint/offsets" in location for location in found["locations"])


@pytest.mark.lab
@pytest.mark.full
def test_the_search_finds_a_leaked_password(found: dict[str, Any]) -> None:
    """An option that is no secret is shown: by Connect everywhere, by classic Spark in a statement."""
    kinds = {location.split(" ")[0] for location in found["controls"]}
    assert {"page", "file"} <= kinds
    assert any(location.startswith("page /connect/") for location in found["controls"]) == (found["mode"] == "connect")


@pytest.mark.lab
@pytest.mark.full
def test_every_way_of_connecting_works(found: dict[str, Any]) -> None:
    failed = {name: set(actions) for name, actions in found["failed"].items()}
    assert failed.pop("sql") == set(), found["errors"]
    assert failed.pop("password") == MEANT_TO_FAIL, found["errors"]
    assert failed.pop("refused") == {"count", "a wrong value"}, found["errors"]  # a stream has a row with error instead
    assert failed == {"jaas": set(), "file": set(), "registered": set()}, found["errors"]
    assert not found["by_hand"], "a secret in an option of a source that was not registered by us"


def test_a_secret_option_is_rejected_where_spark_would_show_it() -> None:
    options = CaseInsensitiveDict({"Kafka.bootstrap.servers": "b:1", "Kafka.SASL.Password": CANARY})
    with pytest.raises(UsageError, match=r"(?i)the option kafka\.sasl\.password is a secret") as caught:
        client_config(options, KafkaBatches(options))
    assert CANARY not in str(caught.value)
    hiding = connecting(KafkaBatches, config=None, hides_secrets=True)
    assert client_config(options, hiding(options)) == ClientConfig(
        {"bootstrap.servers": "b:1", "sasl.password": CANARY}
    )


def test_registered_connections_are_used_without_connection_options(tmp_path: Path) -> None:
    registered = ClientConfig("registered:1")
    source = connecting(KafkaBatches, config=registered, hides_secrets=False)
    assert client_config({}, source({})) == registered
    assert client_config({"kafka.bootstrap.servers": "said:1"}, source({})) == ClientConfig("said:1")
    with pytest.raises(UsageError, match="name no cluster"):
        client_config({}, KafkaBatches({}))
    with pytest.raises(UsageError, match="name no cluster"):
        client_config({"kafka.client.id": "me"}, source({}))
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=of-the-file:1\nclient.id=me\n")
    of_file = client_config({"commandConfig": str(path)}, source({}))
    assert of_file == ClientConfig({"bootstrap.servers": "of-the-file:1", "client.id": "me"})
    elsewhere = client_config({"commandConfig": str(path), "kafka.bootstrap.servers": "said:1"}, source({}))
    assert elsewhere.bootstrap_servers == ("said:1",)
    with pytest.raises(UsageError, match=r"commandConfig and kafka\.client\.id both configure the client"):
        client_config({"commandConfig": str(path), "kafka.client.id": "you"}, source({}))
