"""ACLs of a principal on a broker with an authorizer."""

from __future__ import annotations

from kafka.protocol import admin

from toolkit import Cluster
from toolkit.lab.clients import until
from toolkit.sources.live import broker_client

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ALL, READ, WRITE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS = 2, 3, 4, 7, 8, 9, 10
ANY, LITERAL, PREFIXED = 1, 3, 4
DENY, ALLOW = 2, 3
SECRETS = {"admin": "admin-secret-1", "watcher": "watcher-secret-2", "nobody": "nobody-secret-3"}
Right = tuple[int, str, int, int]
"""Resource type, name, pattern type, operation."""


class Acls:
    """ACLs of a principal, by default ``watcher``; gone after the test, and in force when a call returns."""

    def __init__(self, admin: Cluster, user: str = "watcher") -> None:
        self.admin = admin
        self.principal = f"User:{user}"
        whatever = {"resource_name_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
        self._own = {
            "resource_type_filter": 1, "pattern_type_filter": ANY, "principal_filter": self.principal, **whatever,
        }  # fmt: skip

    def allow(self, *rights: Right) -> None:
        self._create(rights, ALLOW)

    def deny(self, *rights: Right) -> None:
        self._create(rights, DENY)

    def _create(self, rights: tuple[Right, ...], permission: int) -> None:
        creation = admin.CreateAclsRequest.AclCreation
        rules = [
            creation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=pattern,
                principal=self.principal,
                host="*",
                operation=operation,
                permission_type=permission,
            )
            for kind, name, pattern, operation in rights
        ]
        before = self.count()
        created = self.admin.client.send_one(admin.CreateAclsRequest(creations=rules), broker_id=1)
        assert {each.error_code for each in created.results} <= {0}
        self._await(before + len(rights))

    def _await(self, count: int) -> None:
        """Wait until every broker has so many."""
        brokers = sorted(self.admin.client.brokers)
        until(lambda: True if all(self.count(each) == count for each in brokers) else None, awaited="the ACLs")

    def count(self, broker_id: int = 1) -> int:
        request = broker_client.DescribeAcls(**self._own)
        return sum(len(each.acls) for each in self.admin.client.send_one(request, broker_id=broker_id).resources)

    def clear(self) -> None:
        one = admin.DeleteAclsRequest.DeleteAclsFilter(**self._own)
        self.admin.client.send_one(admin.DeleteAclsRequest(filters=[one]), broker_id=1)
        self._await(0)
