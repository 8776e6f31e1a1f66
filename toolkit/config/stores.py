"""Java's key and trust stores, and PEM."""

from __future__ import annotations

import re
import shlex

from toolkit.config.keys import Properties
from toolkit.config.needs import need_package, read_bytes
from toolkit.errors import UsageError


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
