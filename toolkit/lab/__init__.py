"""A real Kafka on this machine."""

from __future__ import annotations

from toolkit.lab.broker import Kafka

__all__ = ["Kafka"]
