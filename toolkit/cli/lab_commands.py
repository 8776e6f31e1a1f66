"""Commands that need no cluster: they start a Kafka of their own."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from toolkit.cli.common_options import key_values
from toolkit.cli.output import remark, show, width

Version = Annotated[str, typer.Option("--version", metavar="VERSION", help="Kafka version, 2.8.0 to 4.x.")]


def lab(
    *,
    version: Version = "4.3.1",
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", min=1, max=3, help="Number of brokers.")] = 1,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="Broker setting; may be repeated.")
    ] = None,
) -> None:
    """Run Kafka on this machine until Ctrl-C; nothing is left behind."""
    settings = key_values("--property", properties)

    from toolkit.lab import Kafka

    remark(f"Starting Kafka {version} ...")
    with Kafka(version, brokers=brokers, properties=settings) as kafka:
        count = "1 broker" if brokers == 1 else f"{brokers} brokers"
        try:
            show(
                [
                    f"Kafka {version} with {count} is ready at {kafka.bootstrap_servers}",
                    f"  kafka-txn diagnose --bootstrap-server {kafka.bootstrap_servers}",
                    "Ctrl-C ends it and deletes its data.",
                ]
            )
            threading.Event().wait()
        except KeyboardInterrupt:
            remark("Stopping.")


def demo(*, version: Version = "4.3.1") -> None:
    """Stage real incidents on a local Kafka, find them, end them, and check that consumers move on."""
    from toolkit.lab.demo import run

    raise typer.Exit(0 if run(version, show=show, width=width()) else 1)
