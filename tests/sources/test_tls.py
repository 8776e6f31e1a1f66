"""One configuration for both clients, through real TLS: client certificates, passwords, and a hostname that lies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.config.certificates import Certificates
from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.errors import ConnectionFailed
from toolkit.lab import Kafka

pytestmark = pytest.mark.lab

USER, PASSWORD = "alice", "s3cr3t-of-alice"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("tls"))
    made.make("broker", *made.signed(), "-addext", "subjectAltName=IP:127.0.0.1")
    for name in ("broker", "client"):
        pem = (made.folder / f"{name}.key").read_text() + (made.folder / f"{name}.crt").read_text()
        (made.folder / f"{name}.pem").write_text(pem)
    return made


def tls(certificates: Certificates, protocol: str, *, server: str = "broker") -> dict[str, str]:
    """Broker settings that put TLS on the listener for clients."""
    return {
        "listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.folder / f"{server}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.auth": "required" if protocol == "SSL" else "none",
    }


@pytest.fixture(scope="module")
def mutual(certificates: Certificates) -> Iterator[Kafka]:
    with Kafka("4.3.1", properties=tls(certificates, "SSL")) as kafka:
        yield kafka


def both_clients_connect(config: ClientConfig) -> None:
    with Cluster(config) as cluster:
        assert cluster.finding_rows(recheck_after=0) == []
    admin = AdminClient({**config.librdkafka(), "log_level": 0})
    assert admin.list_topics(timeout=60).brokers


def properties_file(folder: Path, text: str) -> ClientConfig:
    path = folder / "client.properties"
    path.write_text(text)
    return ClientConfig.from_properties(path)


def test_client_certificates_by_java_keys(mutual: Kafka, certificates: Certificates, tmp_path: Path) -> None:
    folder = certificates.folder
    config = properties_file(
        tmp_path,
        f"bootstrap.servers={mutual.bootstrap_servers}\nsecurity.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.ca}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={folder}/client.pem\n",
    )
    both_clients_connect(config)


def test_client_certificates_by_librdkafka_keys(mutual: Kafka, certificates: Certificates) -> None:
    config = {
        "bootstrap.servers": mutual.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificates.ca),
        "ssl.certificate.location": str(certificates.client),
        "ssl.key.location": str(certificates.folder / "client.locked.key"),
        "ssl.key.password": "s3cr3t",
    }
    both_clients_connect(ClientConfig(config))


def test_a_missing_certificate_and_missing_tls_are_errors(mutual: Kafka, certificates: Certificates) -> None:
    address = mutual.bootstrap_servers
    with pytest.raises(ConnectionFailed, match=r"use TLS|closed it"):
        Cluster(address, timeout=10)
    with pytest.raises(ConnectionFailed, match=address):
        Cluster(
            {"bootstrap.servers": address, "security.protocol": "SSL", "ssl.ca.location": str(certificates.ca)},
            timeout=10,
        )


def test_an_unknown_authority_is_an_error(mutual: Kafka) -> None:
    config = {"bootstrap.servers": mutual.bootstrap_servers, "security.protocol": "SSL"}
    with pytest.raises(ConnectionFailed, match=r"ssl\.ca\.location"):
        Cluster(config, timeout=10)


def test_a_password_over_tls(certificates: Certificates, tmp_path: Path) -> None:
    properties = tls(certificates, "SASL_SSL")
    with Kafka("4.3.1", properties=properties, users={USER: PASSWORD}, super_users=[USER]) as kafka:
        config = properties_file(
            tmp_path,
            f"bootstrap.servers={kafka.bootstrap_servers}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{USER}" password="{PASSWORD}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.ca}\n",
        )
        both_clients_connect(config)
        assert PASSWORD not in repr(config)


def test_a_wrong_host_name_is_rejected_unless_verification_is_disabled(certificates: Certificates) -> None:
    (certificates.folder / "server.pem").write_text(
        certificates.key("server").read_text() + certificates.server.read_text()
    )
    with Kafka("4.3.1", properties=tls(certificates, "SSL", server="server")) as kafka:
        config = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates.ca),
            "ssl.certificate.location": str(certificates.client),
            "ssl.key.location": str(certificates.key("client")),
        }
        with pytest.raises(ConnectionFailed, match="names"):
            Cluster(config, timeout=10)
        both_clients_connect(ClientConfig(config | {"ssl.endpoint.identification.algorithm": ""}))
