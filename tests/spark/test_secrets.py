"""Credentials appear in no plan, page, log, event, error or checkpoint, under classic Spark and Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import CaseInsensitiveDict

from tests.config.certificates import Certificates
from tests.sources.test_authorization import is_led
from tests.spark.rows import SESSION_MODULES
from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.errors import UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, create_topic, until
from toolkit.lab.incidents import EVERYDAY
from toolkit.spark.datasources.data_sources import KafkaBatches
from toolkit.spark.datasources.reader_options import SECRETS, SETTING, client_config, hide_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
USER, CANARY = "alice", "cAnArY-9f8e7d"
EXPECTED_FAILURES = {"a wrong column", "a wrong option", "a wrong value", "a failing task"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.make("broker", *made.signed(), "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    (made.folder / "broker.pem").write_text(made.key("broker").read_text() + (made.folder / "broker.crt").read_text())
    return made


@pytest.fixture(scope="module")
def secured_kafka(certificates: Certificates) -> Iterator[Kafka]:
    """Three brokers, each with a partition of ``watched``; clients use SASL_SSL."""
    tls = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.folder / "broker.pem"),
    }
    settings = {**EVERYDAY.properties, **tls, "transaction.state.log.num.partitions": 3}
    with Kafka("4.3.1", brokers=3, properties=settings, users={USER: CANARY}, super_users=[USER]) as kafka:
        trust = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(certificates.ca)}
        config = kafka.client_config(USER) | trust
        create_topic(config, "watched", num_partitions=3, replication_factor=-1, replica_assignment=[[1], [2], [3]])
        with Cluster(config, timeout=60) as cluster:
            until(lambda: is_led(cluster.client, "watched"), awaited="the leaders of watched")
            producer = TxnProducer(cluster.client, "watched").init()
            for partition in range(3):
                producer.send("watched", partition)
        yield kafka


@pytest.fixture(scope="module", params=["connect", "classic"])
def search_report(
    request: pytest.FixtureRequest,
    secured_kafka: Kafka,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    script = str(Path(__file__).with_name("canary.py"))
    command = [sys.executable, script, request.param, secured_kafka.bootstrap_servers, USER, str(folder)]
    command.append(str(certificates.folder))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    process = subprocess.run(
        command, cwd=ROOT, env=environment | {"CANARY": CANARY}, capture_output=True, text=True, timeout=1100
    )
    assert process.returncode == 0, process.stderr.replace(CANARY, "[the canary]")
    report: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    assert report["spark"].startswith(SESSION_MODULES[request.param])
    return report | {"mode": request.param, "output": process.stdout + process.stderr}


@pytest.mark.lab
@pytest.mark.full
def test_a_password_appears_nowhere(search_report: dict[str, Any]) -> None:
    assert search_report["matches"] == {}
    assert CANARY not in search_report["output"]
    kinds = {location.split(" ")[0] for location in search_report["locations"]}
    assert kinds == {"result", "error", "output", "page", "file"}
    assert any("events/" in location for location in search_report["locations"])
    assert any("java.log" in location for location in search_report["locations"])


@pytest.mark.lab
@pytest.mark.full
def test_the_search_finds_a_leaked_password(search_report: dict[str, Any]) -> None:
    """An option that is not secret appears in pages and files, and under Connect also on its own page."""
    kinds = {location.split(" ")[0] for location in search_report["controls"]}
    assert {"page", "file"} <= kinds
    assert any(location.startswith("page /connect/") for location in search_report["controls"]) == (
        search_report["mode"] == "connect"
    )


@pytest.mark.lab
@pytest.mark.full
def test_all_kinds_of_connection_options_work(search_report: dict[str, Any]) -> None:
    failed = {name: set(actions) for name, actions in search_report["failed"].items()}
    assert failed.pop("sql") == set(), search_report["errors"]
    assert failed.pop("password") == EXPECTED_FAILURES, search_report["errors"]
    assert failed.pop("refused") == {"count", "a wrong value"}, search_report["errors"]
    assert failed.pop("wrong scope") == {"pipeline"}
    assert failed == {"jaas": set(), "file": set(), "registered": set(), "scope": set()}, search_report["errors"]
    assert not search_report["by_hand"], "a secret option of a source that was registered without redaction"


def test_a_secret_option_is_rejected_where_spark_would_show_it() -> None:
    options = CaseInsensitiveDict({"Kafka.bootstrap.servers": "b:1", "Kafka.SASL.Password": CANARY})
    with pytest.raises(UsageError, match=r"(?i)the option kafka\.sasl\.password is a secret") as error:
        KafkaBatches(options).client_config()
    assert CANARY not in str(error.value)
    assert client_config(options, registered=None, hides_secrets=True) == ClientConfig(
        {"bootstrap.servers": "b:1", "sasl.password": CANARY}
    )


def test_registered_connections_are_used_without_connection_options(tmp_path: Path) -> None:
    registered = ClientConfig("registered:1")
    config = partial(client_config, registered=registered, hides_secrets=False)
    assert config({}) == registered
    assert config({"kafka.bootstrap.servers": "said:1"}) == ClientConfig("said:1")
    with pytest.raises(UsageError, match="name no cluster"):
        KafkaBatches({}).client_config()
    with pytest.raises(UsageError, match="name no cluster"):
        config({"kafka.client.id": "me"})
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=of-the-file:1\nclient.id=me\n")
    from_file = config({"commandConfig": str(path)})
    assert from_file == ClientConfig({"bootstrap.servers": "of-the-file:1", "client.id": "me"})
    with_other_server = config({"commandConfig": str(path), "kafka.bootstrap.servers": "said:1"})
    assert with_other_server.bootstrap_servers == ("said:1",)
    with pytest.raises(UsageError, match=r"commandConfig and kafka\.client\.id both configure the client"):
        config({"commandConfig": str(path), "kafka.client.id": "you"})


@pytest.mark.parametrize(("before", "after"), [("", SECRETS), ("(?i)token", f"(?:(?i)token)|{SECRETS}")])
def test_secrets_are_hidden_beside_what_a_session_hides(before: str, after: str) -> None:
    settings = {SETTING: before}
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
    for _ in range(2):  # the second time changes nothing
        assert hide_secrets(cast("SparkSession", SimpleNamespace(conf=conf)))
        assert settings == {SETTING: after}


def test_a_session_that_does_not_show_the_setting_is_registered_with() -> None:
    """Serverless compute raises for a setting that it does not have, even with a default: `register` failed."""

    class Conf:
        def get(self, name: str, default: str) -> str:
            raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")

    assert not hide_secrets(cast("SparkSession", SimpleNamespace(conf=Conf())))
