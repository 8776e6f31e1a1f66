"""Kafka's names and texts of error codes."""

from __future__ import annotations

import kafka.errors

# Kafka's names; kafka-python renames some codes and lacks the newest.
_NAMES = {code: error.message for code, error in kafka.errors.kafka_errors.items() if code is not None} | {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
}


def error_name(code: int) -> str:
    """Kafka's name of an error code, for example ``"NOT_LEADER_OR_FOLLOWER"``."""
    return str(_NAMES.get(code, f"ERROR_{code}"))


def error_text(code: int, message: str | None = None) -> str:
    """``"NAME: text"`` for the error column, with the broker's own message if it sent one."""
    text = message or " ".join(str(getattr(kafka.errors.for_code(code), "description", "")).split())
    return f"{error_name(code)}: {text}" if text else error_name(code)
