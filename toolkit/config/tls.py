"""TLS: truststore, key pair and checks; from Java's stores or PEM, for librdkafka and for Python's ssl."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolkit.config.keys import TLS_KEYS, Properties
from toolkit.config.properties import need_package, read_bytes, refuse_java
from toolkit.errors import UsageError

if TYPE_CHECKING:
    import ssl


CHECK = "ssl.endpoint.identification.algorithm"


def tls(properties: Properties) -> Properties:
    """The canonical keys."""
    do = "Set the certificates as PEM or PKCS#12 files."
    refuse_java(properties, "ssl.engine.factory.class", do=do, own=(".DefaultSslEngineFactory",))
    keys = {key: properties[key] for key in TLS_KEYS if key in properties}
    keys |= _trust(properties) | _key_pair(properties)
    for key in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        if key in keys:
            keys[key] = pem_lines(key, keys[key])
    for key in ("ssl.certificate.location", "ssl.key.location", "ssl.crl.location"):
        if key in keys:
            read_bytes(keys[key])
    if CHECK in keys:
        check = keys[CHECK].lower() or "none"
        if check not in {"none", "https"}:
            raise UsageError(f"{CHECK} is {keys[CHECK]!r}.", do="Use https, or none.")
        keys[CHECK] = check
    if re.match(r"(TLS|SSL)_", keys.get("ssl.cipher.suites", "")):  # Java's names, unknown to OpenSSL
        del keys["ssl.cipher.suites"]
    return keys


def _trust(properties: Properties) -> Properties:
    path = properties.get("ssl.truststore.location", properties.get("ssl.ca.location"))
    if not path or path == "probe":  # librdkafka's value for the system's certificates
        return {}
    if os.path.isdir(path) or is_pem(path):
        return {"ssl.ca.location": path}
    _, certificates = read_pkcs12(path, properties, "ssl.truststore.password")
    return {"ssl.ca.pem": certificates}


def _key_pair(properties: Properties) -> Properties:
    path = properties.get("ssl.keystore.location")
    if not path:
        return {}
    if is_pem(path):
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    key, certificates = read_pkcs12(path, properties, "ssl.keystore.password")
    if not key:
        raise UsageError(f"{path} holds no private key.", do="Point ssl.keystore.location to the client's key store.")
    return {"ssl.certificate.pem": certificates, "ssl.key.pem": key}


def is_pem(path: str) -> bool:
    """PEM or PKCS#12, by its bytes: Java's default type "JKS" also opens PKCS#12 files."""
    start = read_bytes(path)
    if start[:4] in {b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"}:
        new = re.sub(r"\.\w+$", "", path) + ".p12"
        kind = "JKS" if start[0] == 0xFE else "JCEKS"
        raise UsageError(
            f"{path} is a {kind} store, which only Java reads.",
            do=f"Convert it once: keytool -importkeystore -srckeystore {shlex.quote(path)} -srcstoretype {kind} "
            f"-destkeystore {shlex.quote(new)} -deststoretype PKCS12",
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
    text = text.replace("\\n", "\n")
    blocks = re.findall(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", text, re.DOTALL)
    if not blocks:
        raise UsageError(
            f"{name} is not PEM.", do="It starts with -----BEGIN ...----- and ends with -----END ...-----."
        )
    lines: list[str] = []
    for label, body in blocks:
        packed = "".join(body.split())
        wrapped = body.strip().splitlines() if ":" in body else [packed[i : i + 64] for i in range(0, len(packed), 64)]
        lines += [f"-----BEGIN {label}-----", *wrapped, f"-----END {label}-----"]
    return "\n".join(lines) + "\n"


def ssl_context(tls: Properties) -> ssl.SSLContext:
    """An SSL context with the same truststore, key pair and checks as librdkafka."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    verify = tls.get("enable.ssl.certificate.verification", "true") != "false"
    context.check_hostname = verify and tls.get("ssl.endpoint.identification.algorithm") != "none"
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    key = "ssl.ca"
    try:
        _load_trust(context, tls)
        key = "ssl.cipher.suites"
        if tls.get(key):
            context.set_ciphers(tls[key])
        key = "ssl.certificate and ssl.key"
        _load_key_pair(context, tls)
    except (OSError, ValueError) as error:  # SSLError is an OSError; its text has a reason and no content
        reason = getattr(error, "reason", None) or type(error).__name__
        raise UsageError(f"{key} does not load ({reason}).", do="Check the files, and ssl.key.password.") from None
    return context


def _load_trust(context: ssl.SSLContext, tls: Properties) -> None:
    import ssl

    location, pem = tls.get("ssl.ca.location"), tls.get("ssl.ca.pem")
    if location == "probe":  # librdkafka's value for the system's certificates
        location = None
    if location:
        context.load_verify_locations(**{"capath" if os.path.isdir(location) else "cafile": location})
    if pem:
        context.load_verify_locations(cadata=pem)
    if not (location or pem):
        context.load_default_certs()
    if tls.get("ssl.crl.location"):
        context.load_verify_locations(tls["ssl.crl.location"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_key_pair(context: ssl.SSLContext, tls: Properties) -> None:
    # Python's ssl reads a key pair from files only: inline PEM is in a private directory while it loads.
    with contextlib.ExitStack() as stack:
        paths: dict[str, str | None] = {}
        for part in ("certificate", "key"):
            paths[part] = tls.get(f"ssl.{part}.location")
            if pem := tls.get(f"ssl.{part}.pem"):
                paths[part] = stack.enter_context(_private_file(pem))
        if paths["certificate"]:
            # a callable: without one, OpenSSL would prompt for the password on the terminal
            password = tls.get("ssl.key.password", "")
            context.load_cert_chain(paths["certificate"], paths["key"], password=lambda: password)


@contextlib.contextmanager
def _private_file(text: str) -> Iterator[str]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kafka-txn-") as folder:  # mode 0700
        path = os.path.join(folder, "pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text)
        yield path
