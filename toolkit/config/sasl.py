"""SASL: mechanism and credentials, from plain keys or ``sasl.jaas.config``."""

from __future__ import annotations

from toolkit.config.jaas import MODULES, jaas_properties
from toolkit.config.keys import KERBEROS_KEYS, PASSWORD_KEYS, Properties
from toolkit.config.needs import refuse_java
from toolkit.config.oauth import oauth
from toolkit.errors import UsageError


def sasl(properties: Properties) -> Properties:
    """The canonical keys."""
    mechanism = properties.get("sasl.mechanisms", "GSSAPI").upper()  # the default of Java and of librdkafka
    if mechanism not in MODULES:
        raise UsageError(
            f"sasl.mechanism is {mechanism!r}, which is not supported.",
            means="Mechanisms other than Kafka's own are plug-ins of one client.",
            do=f"Use one of {', '.join(MODULES)}; for a cloud's identity service, use OAUTHBEARER and an oauth_cb.",
        )
    do = "Set the credentials themselves, or with OAUTHBEARER an oauth_cb."
    refuse_java(properties, "sasl.client.callback.handler.class", do=do)
    refuse_java(properties, "sasl.login.class", do=do)
    own = (".OAuthBearerLoginCallbackHandler", ".OAuthBearerUnsecuredLoginCallbackHandler")
    refuse_java(properties, "sasl.login.callback.handler.class", do=do, own=own)
    if "sasl.jaas.config" in properties:
        for key, value in jaas_properties(mechanism, properties["sasl.jaas.config"]).items():
            if properties.setdefault(key, value) != value:
                raise UsageError(f"{key} and sasl.jaas.config have different values.", do="Keep one of them.")
    complete = {"GSSAPI": _kerberos, "OAUTHBEARER": oauth}.get(mechanism, _password)
    return {"sasl.mechanisms": mechanism} | complete(properties)


def _password(properties: Properties) -> Properties:
    for key in PASSWORD_KEYS:
        if not properties.get(key):
            raise UsageError(
                f"{properties['sasl.mechanisms']} needs credentials, and {key} is missing.",
                do="Set sasl.username and sasl.password, or sasl.jaas.config.",
            )
    return {key: properties[key] for key in PASSWORD_KEYS}


def _kerberos(properties: Properties) -> Properties:
    kerberos = {key: properties[key] for key in KERBEROS_KEYS if key in properties}
    if "%{" not in kerberos.get("sasl.kerberos.kinit.cmd", "%{"):
        del kerberos["sasl.kerberos.kinit.cmd"]  # Java's key of this name is only the path of kinit
    if not kerberos.keys() & {"sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd"}:
        kerberos["sasl.kerberos.min.time.before.relogin"] = "0"  # the ticket cache: no kinit by librdkafka
    return kerberos
