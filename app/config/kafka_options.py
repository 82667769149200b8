"""Options of Kafka's client: by Java's names; those that librdkafka names otherwise are translated
or refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
"""By mechanism the class for a user and a password."""
LOGIN = ("sasl.username", "sasl.password")
RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""Names of librdkafka with the same values."""
PEM = {"ssl.ca": "ssl.truststore.type", "ssl.certificate": "ssl.keystore.type"}
"""By the beginning of a name of librdkafka, the option that says that it is PEM."""
_KEYSTORE = "ssl.keystore.type PEM and ssl.keystore.location, a file with the key and certificates"
_KERBEROS = "sasl.jaas.config with com.sun.security.auth.module.Krb5LoginModule"
OTHERWISE = {
    "ssl.certificate.location": _KEYSTORE,
    "ssl.key.location": _KEYSTORE,
    "enable.ssl.certificate.verification": "ssl.truststore.location, a file with the certificate",
    "sasl.kerberos.keytab": _KERBEROS,
    "sasl.kerberos.principal": _KERBEROS,
    "sasl.oauthbearer.client.id": "sasl.jaas.config with clientId",
    "sasl.oauthbearer.client.secret": "sasl.jaas.config with clientSecret",
    "sasl.oauthbearer.method": "sasl.login.callback.handler.class",
    "socket.timeout.ms": "timeout_ms",
    "metadata.broker.list": "bootstrap.servers",
}
"""By name of librdkafka, what Java has in its place."""


def refuse(names: Iterable[str], prefix: str = "", translates: bool = False) -> None:
    """ValueError for a name that only librdkafka has; with `translates` for one that `as_java` does
    not know. `prefix` is that of the names."""
    java = {} if translates else {**RENAMED, **dict.fromkeys(LOGIN, "sasl.jaas.config")}
    for name in names:
        key = name.removeprefix(prefix)
        instead = {**OTHERWISE, **java}.get(key)
        if name.startswith(prefix) and instead is not None:
            raise ValueError(f"options.{name}: is librdkafka's; Kafka's Java client has {instead}")


def as_java(options: Mapping[str, str]) -> dict[str, str]:
    """The options with those of librdkafka by Java's names; secrets are put in already."""
    java = {RENAMED.get(key, key): value for key, value in options.items() if key not in LOGIN}
    for begin, kind in PEM.items():
        if any(key.startswith(begin) for key in options):
            java.setdefault(kind, "PEM")
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    if any(key in options for key in LOGIN):
        module = MODULES.get(java.get("sasl.mechanism", "").upper())
        if module is not None:
            user, password = (_quoted(options.get(key, "")) for key in LOGIN)
            login = f"{module} required username={user} password={password};"
            java.setdefault("sasl.jaas.config", login)
    return java


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
