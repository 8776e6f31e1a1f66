"""TLS, with certificates made here."""

import pickle
import shlex
import shutil
import ssl
import subprocess
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.config.certificates import Certificates, shake_hands, tls
from toolkit.config import ClientConfig
from toolkit.errors import UsageError


def test_trust_and_host_name(certificates: Certificates) -> None:
    trusting = tls(ssl_ca_location=certificates.ca)
    assert trusting == tls(ssl_truststore_location=certificates.ca, ssl_truststore_type="PEM")
    assert shake_hands(trusting, certificates) == ""
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(trusting, certificates, host="10.0.0.1.example.com")
    unchecked = tls(ssl_ca_location=certificates.ca, ssl_endpoint_identification_algorithm="")
    assert shake_hands(unchecked, certificates, host="other.example.com") == ""
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate"):
        shake_hands(tls(ssl_endpoint_identification_algorithm=""), certificates)
    credulous = tls(enable_ssl_certificate_verification="false")
    assert shake_hands(credulous, certificates, host="other.example.com") == ""


def key_pairs(certificates: Certificates) -> dict[str, ClientConfig]:
    certificate, key = certificates.client.read_text(), certificates.key("client").read_text()
    both = certificates.folder / "both.pem"
    both.write_text(key + certificate)
    ca = certificates.ca
    return {
        "files": tls(
            ssl_ca_location=ca, ssl_certificate_location=certificates.client, ssl_key_location=key_file(key, ca)
        ),
        "locked": tls(
            ssl_ca_location=ca,
            ssl_certificate_location=certificates.client,
            ssl_key_location=certificates.folder / "client.locked.key",
            ssl_key_password="s3cr3t",
        ),
        "java file": tls(ssl_truststore_location=ca, ssl_keystore_location=both, ssl_keystore_type="PEM"),
        "java inline, on one line": tls(
            ssl_truststore_certificates=ca.read_text().replace("\n", " "),
            ssl_keystore_certificate_chain=certificate.replace("\n", " "),
            ssl_keystore_key=key.replace("\n", ""),
        ),
        "librdkafka inline": tls(ssl_ca_pem=ca.read_text(), ssl_certificate_pem=certificate, ssl_key_pem=key),
    }


def key_file(key: str, beside: Path) -> Path:
    path = beside.parent / "plain.key"
    path.write_text(key)
    return path


@pytest.mark.parametrize("form", ["files", "locked", "java file", "java inline, on one line", "librdkafka inline"])
def test_the_client_sends_its_certificate(certificates: Certificates, form: str) -> None:
    config = key_pairs(certificates)[form]
    assert shake_hands(config, certificates) == "client"
    AdminClient(config.librdkafka() | {"log_level": 0})  # librdkafka loads the pair here, and raises if it cannot
    assert "PRIVATE" not in repr(config)
    body = certificates.key("client").read_text().splitlines()[1]
    if "inline" in form:
        assert body not in config.scrub(f"bad line: {body}")


def test_inline_keys_leave_no_file(certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = key_pairs(certificates)["librdkafka inline"]
    observed: list[tuple[int, int]] = []
    load = ssl.SSLContext.load_cert_chain

    def spy(self: ssl.SSLContext, certfile: str, keyfile: str, password: Any) -> None:
        observed.append((Path(keyfile).stat().st_mode & 0o777, Path(keyfile).parent.stat().st_mode & 0o777))
        load(self, certfile, keyfile, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config.kafka_python()
    assert observed == [(0o600, 0o700)]
    assert not list(tmp_path.iterdir())


def test_a_wrong_key_password_is_an_error_without_a_prompt(certificates: Certificates) -> None:
    locked = certificates.folder / "client.locked.key"
    for keys in ({}, {"ssl_key_password": "s3cr3t-wrong"}):
        config = tls(ssl_certificate_location=certificates.client, ssl_key_location=locked, **keys)
        with pytest.raises(UsageError, match=r"ssl.certificate and ssl.key does not load") as caught:
            config.kafka_python()
        assert "s3cr3t" not in str(caught.value)


def test_a_broken_trust_store_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=r"ssl.ca does not load"):
        tls(ssl_ca_location=tmp_path / "ca.pem").kafka_python()


def test_java_cipher_names_are_ignored() -> None:
    assert "ssl.cipher.suites" not in tls(ssl_cipher_suites="TLS_AES_256_GCM_SHA384").librdkafka()
    assert tls(ssl_cipher_suites="ECDHE+AESGCM").librdkafka()["ssl.cipher.suites"] == "ECDHE+AESGCM"


HAS_CRYPTOGRAPHY = util.find_spec("cryptography") is not None
needs_cryptography = pytest.mark.skipif(not HAS_CRYPTOGRAPHY, reason="the package cryptography is not installed")
needs_keytool = pytest.mark.skipif(not shutil.which("keytool"), reason="Java's keytool is not on PATH")


@needs_cryptography
def test_a_pkcs12_key_store(certificates: Certificates) -> None:
    store = certificates.pkcs12("client", password="s3cr3t")
    config = tls(ssl_truststore_location=certificates.ca, ssl_keystore_location=store, ssl_keystore_password="s3cr3t")
    assert shake_hands(config, certificates) == "client"
    AdminClient(config.librdkafka() | {"log_level": 0})
    assert pickle.loads(pickle.dumps(config)) == config
    assert "PRIVATE" not in repr(config)


@needs_cryptography
def test_a_pkcs12_store_with_a_wrong_password(certificates: Certificates, tmp_path: Path) -> None:
    store = certificates.pkcs12("client", password="right")
    with pytest.raises(UsageError, match=r"does not open as PKCS#12. Check ssl.keystore.password") as caught:
        tls(ssl_keystore_location=store, ssl_keystore_password="s3cr3t")
    assert "s3cr3t" not in str(caught.value)
    (tmp_path / "ca.der").write_bytes(b"\x30\x82 no store")
    for key in ("ssl_truststore_location", "ssl_ca_location"):  # the password is Java's key for both
        with pytest.raises(UsageError, match=r"Check ssl.truststore.password"):
            tls(**{key: tmp_path / "ca.der"})


def test_a_pkcs12_store_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trust.p12").write_bytes(b"\x30\x82")
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"trust.p12 is a PKCS#12 store.*pip install cryptography"):
        tls(ssl_truststore_location=tmp_path / "trust.p12")


@needs_keytool
@needs_cryptography
@pytest.mark.parametrize("kind", ["JKS", "JCEKS"])
def test_java_stores_made_by_keytool(certificates: Certificates, tmp_path: Path, kind: str) -> None:
    """A store that only Java reads is refused with the command that converts it, and that command is right."""
    trust, keys = tmp_path / f"trust store.{kind}", tmp_path / f"client.{kind}"
    importing = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(certificates.ca), "-storetype", kind]
    keytool("keytool", *importing, "-keystore", str(trust), "-storepass", "changeit")
    pair = ["-srckeystore", str(certificates.pkcs12("client", password="s3cr3t")), "-srcstorepass", "s3cr3t"]
    passwords = ["-srcalias", "1", "-deststorepass", "changeit", "-destkeypass", "its-0wn"]
    keytool("keytool", "-importkeystore", *pair, "-destkeystore", str(keys), "-deststoretype", kind, *passwords)
    for key, store, own in (
        ("truststore", trust, []),
        ("keystore", keys, ["-srcalias", "1", "-srckeypass", "its-0wn"]),
    ):
        with pytest.raises(UsageError, match=f"is a {kind} store") as caught:
            tls(**{f"ssl_{key}_location": store})
        command = shlex.split(caught.value.do.partition(": ")[2])
        keytool(*command, "-srcstorepass", "changeit", "-deststorepass", "changeit", *own)
        assert command[command.index("-destkeystore") + 1] == str(store.with_suffix(".p12"))
    trusting = {"ssl_truststore_location": trust.with_suffix(".p12"), "ssl_truststore_password": "changeit"}
    assert shake_hands(tls(**trusting), certificates) == ""
    config = tls(**trusting, ssl_keystore_location=keys.with_suffix(".p12"), ssl_keystore_password="changeit")
    assert shake_hands(config, certificates) == "client"
    AdminClient(config.librdkafka() | {"log_level": 0})
    with pytest.raises(UsageError, match="holds no private key"):
        tls(ssl_keystore_location=trust.with_suffix(".p12"), ssl_keystore_password="changeit")


def keytool(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=120)
