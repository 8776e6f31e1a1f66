"""TLS settings for Python's ssl, from the canonical form."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolkit.config.keys import Properties
from toolkit.errors import UsageError

if TYPE_CHECKING:
    import ssl


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
