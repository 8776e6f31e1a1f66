"""Typical configurations of users: the same ones with Java's and with librdkafka's keys."""

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
DEFAULTS = {"bootstrap.servers": "b:9092", "client.id": "kafka-txn-toolkit", "security.protocol": "PLAINTEXT"}
TOKEN: dict[str, object] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
CREDENTIALS: dict[str, object] = {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "s3cr3t"}


SAME: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "plain over TLS": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} required username="ann" password="s3;cr=t";',
            "ssl.endpoint.identification.algorithm": "",
            "request.timeout.ms": "15000",
        },
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "s3;cr=t",
            "ssl.endpoint.identification.algorithm": "none",
            "socket.timeout.ms": 15000,
        },
    ),
    "scram, shaded as Databricks does": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f"kafkashaded.{SCRAM} required username='ann' password='it\"s';",
        },
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "scram-sha-512",
            "sasl.username": "ann",
            "sasl.password": 'it"s',
        },
    ),
    "kerberos with a keytab": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
            "sasl.jaas.config": f'{KERBEROS} required useKeyTab=true keyTab="/etc/a.keytab" principal="a@R" '
            'serviceName="kafka";',
        },
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.keytab": "/etc/a.keytab",
            "sasl.kerberos.principal": "a@R",
            "sasl.kerberos.service.name": "kafka",
        },
    ),
    "kerberos with the ticket cache": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f"{KERBEROS} required useTicketCache=true;",
        },
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.min.time.before.relogin": 0,
        },
    ),
    "client credentials": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured."
            "OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f'{OAUTH} required clientId="me" clientSecret="s3cr3t" scope="kafka" '
            'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2";',
        },
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.secret": "s3cr3t",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        },
    ),
    "an unsecured token, for a test broker": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="alice";',
        },
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": "principal=alice",
        },
    ),
    "what the protocol does not use is not read": (
        {
            "security.protocol": "PLAINTEXT",
            "ssl.truststore.location": "/nowhere.jks",
            "sasl.jaas.config": "not even JAAS",
        },
        {},
    ),
}
