"""TLS: truststore, key pair and checks; from PKCS#12 or PEM, for librdkafka and for Python's ssl."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolkit.config.properties import TLS, Properties, need_package, read_bytes, refuse_java
from toolkit.errors import UsageError

if TYPE_CHECKING:
    import ssl


CHECK = "ssl.endpoint.identification.algorithm"
JAVA_STORES = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}  # by their first bytes
PROBE = "probe"  # librdkafka's value of ssl.ca.location for the system's certificates
OF_TRUSTSTORE, OF_KEYSTORE = "ssl.truststore.password", "ssl.keystore.password"


def tls(properties: Properties) -> Properties:
    """The canonical keys."""
    do = "Set the certificates as PEM or PKCS#12 files."
    refuse_java(properties, "ssl.engine.factory.class", do=do, own=(".DefaultSslEngineFactory",))
    keys = {key: properties[key] for key in TLS if key in properties}
    trust = properties.get("ssl.truststore.location", keys.pop("ssl.ca.location", None))
    if trust and (trust == PROBE or os.path.isdir(trust) or _is_pem(trust)):
        keys["ssl.ca.location"] = trust
    elif trust:
        _, keys["ssl.ca.pem"] = read_pkcs12(trust, properties, OF_TRUSTSTORE)
    if store := properties.get("ssl.keystore.location"):
        if _is_pem(store):
            keys |= {"ssl.certificate.location": store, "ssl.key.location": store}
        else:
            key, certificates = read_pkcs12(store, properties, OF_KEYSTORE)
            if not key:
                raise UsageError(
                    f"{store} holds no private key.", do="Point ssl.keystore.location to the client's key store."
                )
            keys |= {"ssl.certificate.pem": certificates, "ssl.key.pem": key}
    for key in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        if key in keys:
            keys[key] = pem_lines(key, keys[key])
    for key in ("ssl.certificate.location", "ssl.key.location", "ssl.crl.location"):
        if key in keys:
            read_bytes(keys[key])
    if CHECK in keys:
        keys[CHECK] = keys[CHECK].lower() or "none"
        if keys[CHECK] not in {"none", "https"}:
            raise UsageError(f"{CHECK} is {keys[CHECK]!r}.", do="Use https, or none.")
    if re.match(r"(TLS|SSL)_", keys.get("ssl.cipher.suites", "")):  # Java's names, unknown to OpenSSL
        del keys["ssl.cipher.suites"]
    return keys


def _is_pem(path: str) -> bool:
    """PEM or PKCS#12, by its bytes: Java's default type "JKS" also opens PKCS#12 files."""
    start = read_bytes(path)[:4]
    if kind := JAVA_STORES.get(start):
        new = re.sub(r"\.\w+$", "", path) + ".p12"
        raise UsageError(
            f"{path} is a {kind} store, which only Java reads.",
            do=f"Convert it once, and set the new file: keytool -importkeystore -srckeystore {shlex.quote(path)} "
            f"-srcstoretype {kind} -destkeystore {shlex.quote(new)} -deststoretype PKCS12",
        )
    return start[:1] != b"\x30"


def read_pkcs12(path: str, properties: Properties, password_key: str) -> tuple[str, str]:
    """Private key (empty if there is none) and certificates of a PKCS#12 store, as PEM."""
    need_package("cryptography", f"{path} is a PKCS#12 store; reading it needs the Python package cryptography.")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    password = properties.get(password_key)
    try:
        store = pkcs12.load_pkcs12(read_bytes(path), password.encode() if password else None)
    except ValueError:
        raise UsageError(
            f"{path} does not open as PKCS#12.", do=f"Check {password_key}, and that the file is PKCS#12 or PEM."
        ) from None
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) if store.key else b""
    entries = [entry for entry in (store.cert, *store.additional_certs) if entry]
    certificates = b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in entries)
    return key.decode(), certificates.decode()


def pem_lines(name: str, text: str) -> str:
    """PEM with the line breaks that OpenSSL needs; in a properties file it is often one line."""
    blocks = re.findall(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", text.replace("\\n", "\n"), re.DOTALL)
    if not blocks:
        raise UsageError(
            f"{name} is not PEM.", do="It starts with -----BEGIN ...----- and ends with -----END ...-----."
        )
    lines: list[str] = []
    for label, body in blocks:
        # a body with headers, such as that of an encrypted key, has its own lines
        wrapped = body.strip().splitlines() if ":" in body else re.findall(".{1,64}", "".join(body.split()))
        lines += [f"-----BEGIN {label}-----", *wrapped, f"-----END {label}-----"]
    return "\n".join(lines) + "\n"


def ssl_context(tls: Properties) -> ssl.SSLContext:
    """An SSL context with the same truststore, key pair and checks as librdkafka."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    verify = tls.get("enable.ssl.certificate.verification", "true") != "false"
    context.check_hostname = verify and tls.get(CHECK) != "none"
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    trust, key = tls.get("ssl.ca.location", PROBE), "ssl.ca"
    try:
        if trust != PROBE:
            context.load_verify_locations(**{"capath" if os.path.isdir(trust) else "cafile": trust})
        if pem := tls.get("ssl.ca.pem"):
            context.load_verify_locations(cadata=pem)
        elif trust == PROBE:
            context.load_default_certs()
        if crl := tls.get("ssl.crl.location"):
            context.load_verify_locations(crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        key = "ssl.cipher.suites"
        if tls.get(key):
            context.set_ciphers(tls[key])
        key = "ssl.certificate and ssl.key"
        with _file(tls, "ssl.certificate") as certificate, _file(tls, "ssl.key") as private_key:
            if certificate:
                # a callable: without one, OpenSSL would prompt for the password on the terminal
                password = tls.get("ssl.key.password", "")
                context.load_cert_chain(certificate, private_key, password=lambda: password)
    except (OSError, ValueError) as error:  # SSLError is an OSError; its text has a reason and no content
        reason = getattr(error, "reason", None) or type(error).__name__
        raise UsageError(f"{key} does not load ({reason}).", do="Check the files, and ssl.key.password.") from None
    return context


@contextlib.contextmanager
def _file(tls: Properties, name: str) -> Iterator[str | None]:
    """Path of a certificate or key, which Python's ssl reads from files only: inline PEM is in a private directory."""
    import tempfile

    if not (pem := tls.get(f"{name}.pem")):
        yield tls.get(f"{name}.location")
        return
    with tempfile.TemporaryDirectory(prefix="kafka-txn-") as folder:  # mode 0700
        path = os.path.join(folder, "pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(pem)
        yield path
