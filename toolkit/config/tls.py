"""TLS: truststore, key pair and checks; from Java's stores or PEM, for librdkafka and for Python's ssl."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import re
import shlex
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolkit.config.properties import TLS_KEYS, Properties, need_package, read_bytes, refuse_java
from toolkit.errors import UsageError

if TYPE_CHECKING:
    import ssl


CHECK = "ssl.endpoint.identification.algorithm"
JKS, JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"  # the first bytes of the stores
DIGEST_BYTES = 20  # of SHA-1
OF_TRUSTSTORE, OF_KEYSTORE = "ssl.truststore.password", "ssl.keystore.password"


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
    _, certificates = read_store(path, properties, OF_TRUSTSTORE)
    return {"ssl.ca.pem": certificates}


def _key_pair(properties: Properties) -> Properties:
    path = properties.get("ssl.keystore.location")
    if not path:
        return {}
    if is_pem(path):
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    key, certificates = read_store(path, properties, OF_KEYSTORE)
    if not key:
        raise UsageError(f"{path} holds no private key.", do="Point ssl.keystore.location to the client's key store.")
    return {"ssl.certificate.pem": certificates, "ssl.key.pem": key}


def is_pem(path: str) -> bool:
    """PEM or a store, by its bytes: Java's default type "JKS" also opens PKCS#12 files."""
    start = read_bytes(path)[:4]
    if start == JCEKS:
        new = re.sub(r"\.\w+$", "", path) + ".p12"
        raise UsageError(
            f"{path} is a JCEKS store, which only Java reads.",
            do=f"Convert it once: keytool -importkeystore -srckeystore {shlex.quote(path)} -srcstoretype JCEKS "
            f"-destkeystore {shlex.quote(new)} -deststoretype PKCS12",
        )
    return start != JKS and start[:1] != b"\x30"


def read_store(path: str, properties: Properties, password_key: str) -> tuple[str, str]:
    """Private key (empty if there is none) and certificates of a JKS or PKCS#12 store, as PEM."""
    return (read_jks if read_bytes(path)[:4] == JKS else read_pkcs12)(path, properties, password_key)


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


def read_jks(path: str, properties: Properties, password_key: str) -> tuple[str, str]:
    """Private key (empty if there is none) and certificates of a JKS store, as PEM (``JavaKeyStore``)."""
    data = read_bytes(path)
    password = properties.get(password_key)
    sealed = password is not None and _sha1(_utf16(password) + b"Mighty Aphrodite" + data[:-DIGEST_BYTES])
    if sealed not in (False, data[-DIGEST_BYTES:]):
        raise UsageError(f"{path} does not open as JKS.", do=f"Check {password_key}, and that the file is complete.")
    try:
        entries = list(_jks_entries(io.BytesIO(data)))
    except (EOFError, struct.error):
        raise UsageError(f"{path} is no complete JKS store.", do="Copy it again.") from None
    own = next(((key, chain) for key, chain in entries if key), None)
    if password_key == OF_TRUSTSTORE or own is None:
        return "", "".join(_pem("CERTIFICATE", chain[0]) for _, chain in entries if chain)
    key = _recovered(own[0], properties.get("ssl.key.password") or password or "")
    if key is None:
        raise UsageError(
            f"The private key in {path} does not open.",
            do=f"Check ssl.key.password, or {password_key} if the key has the same password.",
        )
    return _pem("PRIVATE KEY", key), "".join(_pem("CERTIFICATE", each) for each in own[1])


def _jks_entries(store: io.BytesIO) -> Iterator[tuple[bytes, list[bytes]]]:
    """The protected private key, empty for a trusted certificate, and the certificates of each entry."""
    _, version, count = struct.unpack(">4sII", store.read(12))
    for _ in range(count):
        (tag,) = struct.unpack(">I", store.read(4))
        _block(store, ">H")  # the alias
        store.read(8)  # the time of its creation
        key = _block(store, ">I") if tag == 1 else b""
        (certificates,) = struct.unpack(">I", store.read(4)) if tag == 1 else (1,)
        chain = []
        for _ in range(certificates):
            if version > 1:
                _block(store, ">H")  # X.509
            chain.append(_block(store, ">I"))
        yield key, chain


def _block(store: io.BytesIO, size: str) -> bytes:
    (length,) = struct.unpack(size, store.read(struct.calcsize(size)))
    data = store.read(length)
    if len(data) < length:
        raise EOFError
    return data


def _recovered(protected: bytes, password: str) -> bytes | None:
    """The PKCS#8 key of an ``EncryptedPrivateKeyInfo`` (``sun.security.provider.KeyProtector``), or null."""
    try:
        info, _ = _content(protected, 0)
        _, algorithm_end = _content(protected, info)
        start, end = _content(protected, algorithm_end)
    except IndexError:
        return None
    content = protected[start:end]
    salt, hidden, check = content[:DIGEST_BYTES], content[DIGEST_BYTES:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    secret, stream, block = _utf16(password), b"", salt
    while len(stream) < len(hidden):
        block = _sha1(secret + block)
        stream += block
    key = bytes(left ^ right for left, right in zip(hidden, stream, strict=False))
    return key if _sha1(secret + key) == check else None


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the DER element at a position starts and ends."""
    start, length = at + 2, der[at + 1]
    if length >= 0x80:  # the number of bytes that have the length
        start += length - 0x80
        length = int.from_bytes(der[at + 2 : start])
    return start, start + length


def _pem(label: str, der: bytes) -> str:
    return pem_lines(label, f"-----BEGIN {label}-----{base64.b64encode(der).decode()}-----END {label}-----")


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


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
