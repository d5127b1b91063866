"""Settings of Kafka's client, checked and with their secrets, and what its errors mean.

confluent-kafka is imported here, when it is first needed: pipelines without Kafka do without.
"""

import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from rekindle.model.errors import InputError, RekindleError, RunError, SourceAwayError, refuse
from rekindle_spark.connectors import hidden_values
from rekindle_spark.connectors.hidden_values import FromEnvironment, FromFile
from rekindle_spark.user_code import argument_checks

# Set by Rekindle: a range is read by its offsets, and nothing else may move them; and a sink's
# transactions hold what fences older writers.
OWN = (
    "bootstrap.servers",
    "group.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "auto.offset.reset",
    "isolation.level",
    "transactional.id",
    "enable.idempotence",
    "delivery.report.only.error",
)
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Words in the names of options whose values are secrets.
SECRETS = ("password", "passphrase", "secret", "key.pem", "jaas", "sasl.oauthbearer.config")
INVALID = "_INVALID_ARG"
# What to do about refused certificates, credentials and rights, by the names that the client gives
# to errors. At a start no waiting mends them. Later they may pass: a broker restarts, or somebody
# changes rights. A connection that is closed while TLS begins is no `_SSL` but a `_TRANSPORT`.
TLS = "_SSL"
REMEDIES = {
    TLS: "see the options of TLS: ssl.ca.location, and the host's name in its certificate",
    "_AUTHENTICATION": "see the credentials and the sasl.mechanism in the options",
    "SASL_AUTHENTICATION_FAILED": "see the credentials in the options",
    "TOPIC_AUTHORIZATION_FAILED": "give this user the rights to the topic that docs/kafka.md lists",
    "GROUP_AUTHORIZATION_FAILED": "give this user the right to read the consumer group",
    "CLUSTER_AUTHORIZATION_FAILED": "give this user the right IdempotentWrite to the cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "give this user the rights to transactional ids that "
    "docs/kafka.md lists",
}
REFUSALS = tuple(REMEDIES)
# What may pass at any time where Kafka has answered this store before, and counts as absence then:
# a proxy for TLS outlives its brokers, and certificates are renewed.
PASSING = (TLS,)
# Measured: with the default of a second a consumer reads a quarter of the rows.
FETCH_BACKOFF_MS = 10


def library() -> ModuleType:
    """The client library. Raises InputError where it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise InputError(
            where="confluent-kafka",
            what="is not installed, and the pipeline uses Kafka",
            remedy='install "rekindle[kafka]" for the driver and on all nodes',
        ) from error
    return confluent_kafka


def admin_library() -> ModuleType:
    """The part of it that asks about topics and offsets."""
    library()
    from confluent_kafka import admin

    return admin


def check_servers(where: str, servers: object) -> None:
    """Raise InputError for what is no text."""
    if not isinstance(servers, str) or not servers.strip():
        remedy = 'give "HOST:PORT", several with commas between'
        refuse(f"{where}: servers", f"is {argument_checks.shown(servers)}", remedy)


def check_topic(where: str, topic: object) -> None:
    """Raise InputError for what is no name of a topic."""
    if not isinstance(topic, str) or not TOPIC.fullmatch(topic):
        remedy = "name it as Kafka does: letters, digits, '.', '_' and '-'"
        refuse(f"{where}: topic {argument_checks.shown(topic)}", "is no name", remedy)


def check_options(where: str, options: object, others_own: Sequence[str] = ()) -> None:
    """Raise InputError for options that Rekindle sets, with some that it sets here alone, and for
    secrets in the open."""
    argument_checks.check_kind(
        f"{where}: options", options, Mapping, "give a dictionary of options"
    )
    assert isinstance(options, Mapping)
    for name, value in options.items():
        place = f"{where}: option {argument_checks.shown(name)}"
        if name in (*OWN, *others_own):
            refuse(place, "is set by Rekindle", "leave it out")
        hidden = isinstance(value, FromFile | FromEnvironment)
        if not hidden and any(word in str(name) for word in SECRETS):
            remedy = "name where it lies: FromFile(path) or FromEnvironment(name)"
            refuse(place, "is a secret, and pipelines are written into the store", remedy)
        if not hidden and not isinstance(value, str | int | float | bool):
            refuse(place, f"is {argument_checks.shown(value)}", "give a text or a number")


class ErrorNote:
    """The last error that a client has reported by itself since it was last successful. A client
    reports while it is polled: calls that only wait for an answer leave the cause unsaid.

    A refusal stays, for what comes after it says no more than that all brokers are down, and the
    client repeats it every 30 s at most.
    """

    def __init__(self) -> None:
        self.name = self.text = ""

    def clear(self) -> None:
        """Forget it: Kafka has answered since, so it explains no later error."""
        self.name = self.text = ""

    def __call__(self, error: Any) -> None:
        """Keep an error, by the client's own words, which have no options in them."""
        if self.name not in REFUSALS or error.name() in REFUSALS:
            self.name, self.text = error.name(), error.str()


def configuration(
    where: str, servers: str, options: Mapping[str, Any], note: ErrorNote
) -> dict[str, Any]:
    """What a client is made with. Raises RunError where a secret is not there."""
    given = {
        name: hidden_values.revealed(f"{where}: option {name!r}", value)
        for name, value in options.items()
    }
    return {"log_level": 2, **given, "bootstrap.servers": servers, "error_cb": note}


def take_note(consumer: Any, note: ErrorNote) -> None:
    """Note what a consumer has reported. That its group is refused comes in the place of a record,
    and a call that waits for the group only times out."""
    while (message := consumer.poll(0)) is not None:
        if message.error() is not None:
            note(message.error())


def of_error(
    where: str,
    error: Any,
    note: ErrorNote,
    *,
    is_running: bool = False,
    passing: Sequence[str] = (),
) -> RekindleError:
    """What an error of the client means: an option that it does not take, refused for good, or
    away. A source that `is_running` is only away while it is refused, for as long as its patience
    lasts, and each is while the refusal is one of `passing`."""
    name, text = error.name(), error.str()
    if name == INVALID:
        return InputError(
            where=where,
            what=f"the client does not take an option ({text})",
            remedy="mend the options: they are those of librdkafka",
        )
    for said, why in ((note.name, note.text), (name, text)):
        if said in REFUSALS and said not in passing and not is_running:
            what = f"Kafka refuses it ({why})"
            return RunError(where=where, what=what, remedy=REMEDIES[said])
    detail = f"; {note.text}" if note.text else ""
    return SourceAwayError(
        where=where,
        what=f"Kafka cannot be reached ({text}{detail})",
        remedy=remedy_of_absence(note.name, name),
    )


def remedy_of_absence(*names: str) -> str:
    """What to do about a Kafka that cannot be reached, by what the client has reported."""
    away = "see that its brokers are there, and can be reached from here"
    return next((REMEDIES[name] for name in names if name in REMEDIES), away)
