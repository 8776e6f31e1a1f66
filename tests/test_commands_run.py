"""Lines that grant rights are read by Kafka's own tool; commands of ours are in `tests.views.test_document`."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.process import ROOT
from toolkit.command_line import grant
from toolkit.lab import Kafka

ACLS = "org.apache.kafka.tools.AclCommand"


@pytest.mark.full
def test_a_right_is_granted_by_kafkas_own_tool(kafka: Kafka) -> None:
    """The broker has no authorizer: that it says so shows that its tool has read the line, and asked it."""
    page = (ROOT / "docs" / "rights.md").read_text(encoding="utf-8")
    documented = [shlex.split(line)[5:] for line in re.findall(r"^    (kafka-acls\.sh .*)$", page, re.MULTILINE)]
    assert len(documented) >= 8
    for command in (grant("READ", "topic", ["orders", "payments"])[1:], *documented):
        done = kafka.run_tool(ACLS, "--bootstrap-server", kafka.bootstrap_servers, *command)
        assert "No Authorizer is configured" in done.stdout + done.stderr, command
