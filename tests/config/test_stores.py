"""Java's key and trust stores."""

import pickle
import shlex
import shutil
import subprocess
from importlib import util
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.config.certificates import Certificates, shake_hands, tls
from toolkit.errors import UsageError

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
