"""A broker of Kafka that asks clients for a name and a password (SASL PLAIN, without TLS).

What a test does itself goes by a listener of its own, which asks for nothing; `secured` has the
address of the other one.
"""

import socket
from dataclasses import dataclass, field

from broker import Broker
from killable_server import HOST

from rekindle_local import kafka_broker, port_reservation

USER = "rekindle"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(slots=True, kw_only=True)
class SecuredBroker(Broker):
    """`password` is that of the one user."""

    password: str
    guarded: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        Broker.__post_init__(self)
        self.guarded = port_reservation.hold_port(HOST)
        settings = self.folder / kafka_broker.SETTINGS
        lines = settings.read_text().replace(
            "security.protocol.map=", "security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,"
        )
        own = f"SASL_PLAINTEXT://{self.secured}"
        lines = lines.replace("listeners=PLAINTEXT:", f"listeners={own},PLAINTEXT:")
        name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        user = f'user_{USER}="{self.password}"'
        settings.write_text(
            f"{lines}sasl.enabled.mechanisms=PLAIN\n{name}={MODULE} required {user};\n"
        )

    @property
    def secured(self) -> str:
        """HOST:PORT at which it asks who is there."""
        return f"{HOST}:{self.guarded.getsockname()[1]}"

    def close(self) -> None:
        """End it for good."""
        Broker.close(self)
        self.guarded.close()


@dataclass(slots=True, kw_only=True)
class AuthorizingBroker(SecuredBroker):
    """One that refuses whatever the user has no right to. Who is not asked for a name may all."""

    def __post_init__(self) -> None:
        SecuredBroker.__post_init__(self)
        with (self.folder / kafka_broker.SETTINGS).open("a") as settings:
            settings.write(f"authorizer.class.name={AUTHORIZER}\nsuper.users=User:ANONYMOUS\n")
