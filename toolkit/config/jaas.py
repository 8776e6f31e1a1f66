"""Java's ``sasl.jaas.config``: a login module with its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from toolkit.config.keys import Properties
from toolkit.errors import UsageError

_LOGIN = {"username": "sasl.username", "password": "sasl.password"}
# By mechanism: the login module, and the librdkafka keys of its options.
MODULES = {
    "PLAIN": ("PlainLoginModule", _LOGIN),
    "SCRAM-SHA-256": ("ScramLoginModule", _LOGIN),
    "SCRAM-SHA-512": ("ScramLoginModule", _LOGIN),
    "GSSAPI": (
        "Krb5LoginModule",
        {
            "principal": "sasl.kerberos.principal",
            "keyTab": "sasl.kerberos.keytab",
            "serviceName": "sasl.kerberos.service.name",
        },
    ),
    "OAUTHBEARER": (
        "OAuthBearerLoginModule",
        {
            "clientId": "sasl.oauthbearer.client.id",
            "clientSecret": "sasl.oauthbearer.client.secret",
            "scope": "sasl.oauthbearer.scope",
        },
    ),
}
TOKEN = re.compile(
    r"""\s+|/\*.*?\*/|/[^\n]*"""
    r"""|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|(?P<mark>[=;])|(?P<word>[^\s=;"'/]+)""",
    re.DOTALL,
)


def jaas_properties(mechanism: str, text: str) -> Properties:
    """The options of a login module as librdkafka keys."""
    module, options = parse_jaas(text)
    expected, names = MODULES[mechanism]
    if module.rpartition(".")[2] != expected:
        raise UsageError(
            f"sasl.jaas.config has no {expected}, which {mechanism} needs.",
            do="Set sasl.mechanism to the one of the module.",
        )
    if options.get("tokenauth") == "true":
        raise UsageError(
            "sasl.jaas.config uses a delegation token, which librdkafka cannot send.", do="Use SCRAM itself."
        )
    if any(name.startswith("ssl.") for name in options):
        raise UsageError(
            "sasl.jaas.config sets TLS for the token endpoint.", do="Set its certificates as https.ca.location (PEM)."
        )
    found = {names[name]: value for name, value in options.items() if name in names}
    prefix = "extension_"
    extensions = [f"{name.removeprefix(prefix)}={value}" for name, value in options.items() if name.startswith(prefix)]
    if extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(extensions)
    if subject := options.get("unsecuredLoginStringClaim_sub"):
        found |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={subject}"}
    return found


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Parse a ``sasl.jaas.config`` into its login module and options (Kafka's ``JaasConfig``).

    Raises
    ------
    UsageError
        If it does not parse or has more than one module; the error never contains its text, which has secrets.
    """
    tokens = list(_tokens(text))
    kinds, words = "".join(kind for kind, _ in tokens), [word for _, word in tokens]
    if not re.fullmatch(r"[w=]{2,};", kinds):
        _refuse("it is not one login module ended by a semicolon")
    if words[1].lower() not in {"required", "requisite", "sufficient", "optional"}:
        _refuse("no control flag (required) follows the module")
    if not re.fullmatch(r"..(w=w)*;", kinds):
        _refuse("an option is not name=value")
    return words[0], dict(zip(words[2:-1:3], words[4:-1:3], strict=True))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each token, as ``java.io.StreamTokenizer`` reads quotes and escapes; kind is =, ; or w."""
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if not match:
            _refuse("a quote is not closed")
        position = match.end()
        if match["mark"]:
            yield match["mark"], match["mark"]
        elif match["word"]:
            yield "w", match["word"]
        elif match.lastgroup:
            yield "w", re.sub(r"\\([0-3]?[0-7]{1,2}|.)", _unescape, match[match.lastgroup], flags=re.DOTALL)


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}.get(escape, escape)


def _refuse(why: str) -> NoReturn:
    raise UsageError(
        f"sasl.jaas.config does not parse: {why}.",
        do='Write it like: org.apache...PlainLoginModule required username="..." password="...";',
    )
