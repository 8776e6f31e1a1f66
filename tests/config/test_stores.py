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
def test_java_stores_made_by_keytool(certificates: Certificates) -> None:
    """A JCEKS trust store is refused with the command that converts it, and that command is right."""
    store = certificates.folder / "trust store.jceks"
    importing = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(certificates.ca), "-storetype", "JCEKS"]
    keytool("keytool", *importing, "-keystore", str(store), "-storepass", "changeit")
    with pytest.raises(UsageError, match="is a JCEKS store") as caught:
        tls(ssl_truststore_location=store)
    command = shlex.split(caught.value.do.removeprefix("Convert it once: "))
    keytool(*command, "-srcstorepass", "changeit", "-deststorepass", "changeit")
    trusting = tls(
        ssl_truststore_location=command[command.index("-destkeystore") + 1], ssl_truststore_password="changeit"
    )
    assert shake_hands(trusting, certificates) == ""
    AdminClient(trusting.librdkafka() | {"log_level": 0})
    with pytest.raises(UsageError, match="holds no private key"):
        tls(ssl_keystore_location=store.with_suffix(".p12"), ssl_keystore_password="changeit")


@pytest.fixture
def jks(certificates: Certificates) -> tuple[Path, Path]:
    """A trust store and a key store in Java's own format; the key has a password of its own."""
    trust, keys = certificates.folder / "trust.jks", certificates.folder / "client.jks"
    if not keys.exists():
        importing = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(certificates.ca), "-storetype", "JKS"]
        keytool("keytool", *importing, "-keystore", str(trust), "-storepass", "changeit")
        pair = certificates.pkcs12("client", password="s3cr3t")
        source = ["-importkeystore", "-srckeystore", str(pair), "-srcstorepass", "s3cr3t", "-srcalias", "1"]
        passwords = ["-deststorepass", "changeit", "-destkeypass", "its-0wn"]
        keytool("keytool", *source, "-destkeystore", str(keys), "-deststoretype", "JKS", *passwords)
    return trust, keys


@needs_keytool
def test_jks_stores_are_read_without_java(certificates: Certificates, jks: tuple[Path, Path]) -> None:
    trust, keys = jks
    assert keys.read_bytes()[:4] == b"\xfe\xed\xfe\xed"
    config = tls(
        ssl_truststore_location=trust,
        ssl_truststore_type="JKS",
        ssl_truststore_password="changeit",
        ssl_keystore_location=keys,
        ssl_keystore_password="changeit",
        ssl_key_password="its-0wn",
    )
    assert shake_hands(config, certificates) == "client"
    AdminClient(config.librdkafka() | {"log_level": 0})
    assert "PRIVATE" not in repr(config)
    assert shake_hands(tls(ssl_truststore_location=trust), certificates) == "", "without a password, as in Java"
    with pytest.raises(UsageError, match="holds no private key"):
        tls(ssl_keystore_location=trust, ssl_keystore_password="changeit")


@needs_keytool
def test_jks_stores_that_do_not_open(jks: tuple[Path, Path], tmp_path: Path) -> None:
    trust, keys = jks
    with pytest.raises(UsageError, match=r"trust.jks does not open as JKS. Check ssl.truststore.password") as caught:
        tls(ssl_truststore_location=trust, ssl_truststore_password="s3cr3t")
    assert "s3cr3t" not in str(caught.value)
    for password in ({}, {"ssl_keystore_password": "changeit"}, {"ssl_key_password": "changeit"}):
        with pytest.raises(UsageError, match=r"The private key in \S+ does not open. Check ssl.key.password"):
            tls(ssl_keystore_location=keys, **password)
    whole = keys.read_bytes()
    for length in range(4, len(whole) - 20, 7):
        (tmp_path / "cut.jks").write_bytes(whole[:length])
        with pytest.raises(UsageError, match=r"cut.jks is no complete JKS store"):
            tls(ssl_keystore_location=tmp_path / "cut.jks")


def keytool(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=120)
