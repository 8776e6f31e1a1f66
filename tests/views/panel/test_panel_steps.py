"""The panel on real brokers: each of its actions, brokers that go away between the steps, and the postmortem."""

from pathlib import Path

import pytest

from tests.actions.test_commit import Staged
from tests.brokers import on_cluster, set_timeout
from tests.views.panel.panel_state import (
    button,
    checked,
    finding_of,
    is_checked,
    is_done,
    is_refreshed,
    is_visible,
    panel_on,
    panel_text,
    selected,
)
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.config import ClientConfig
from toolkit.errors import ActionFailed, ActionRefused, ConnectionFailed
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, NEGLECTFUL
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.views.panel import AbortPanel

pytestmark = pytest.mark.lab


def test_a_cluster_that_goes_away_between_the_steps_loses_nothing(trail: Audit) -> None:
    """A refresh that failed dropped the finding that was chosen, and what was known of it."""
    with Kafka("4.3.1", properties=EVERYDAY.properties) as own:
        staged = INCIDENTS["never_added"](own)
        with Cluster(own.bootstrap_servers) as cluster:
            panel = panel_on(cluster, trail, staged)
            panel.select(finding_of(panel, staged))
            known = list(panel.findings)
            set_timeout(cluster, 5)
            own.stop_broker(1)
            for step in (panel.dry_run, panel.refresh):
                step()
                assert isinstance(panel.error, ConnectionFailed)
                assert "No response" in panel_text(panel)
                assert "Nothing was written. What is shown is as of" in panel_text(panel)
                assert (panel.findings, panel.step, panel.busy) == (known, "chosen", "")
                assert is_visible(panel, panel.buttons["dry_run"])
            own.start_broker(1)
            until(lambda: is_refreshed(panel) or None, awaited="the broker")
            assert selected(panel).start_offset == staged.start_offset, "still chosen"
            until(lambda: is_checked(panel) or None, awaited="the coordinators")
            own.kill(1)
            panel.execute(f"{staged.topic}-0@{staged.start_offset}")
            assert isinstance(panel.error, ActionFailed)
            assert panel.error.effect == "nothing"
            assert "Nothing was written." in panel_text(panel)
            assert (panel.step, panel.result, selected(panel).verdict) == ("chosen", None, "hanging")
            assert "The current state is not known" in " ".join(panel.problems)
            own.start_broker(1)
            until(lambda: is_checked(panel) or None, awaited="broker and coordinators")
            set_timeout(cluster, 30)
            panel.execute(f"{staged.topic}-0@{staged.start_offset}")
            assert is_done(panel)
            assert [row["step"] for row in panel.actions] == ["refused", "intent", "outcome"]


def test_a_checkpoint_of_flink_is_committed(kafka: Kafka, trail: Audit, tmp_path: Path) -> None:
    staged = Staged(kafka, tmp_path / "checkpoints", "panel-commit")
    with staged.cluster() as cluster:
        panel = AbortPanel(cluster, topics=[staged.topic], audit=trail, recheck_after=0.2)
        panel.select(next(each for each in panel.findings if each.action == "commit"))
        assert panel.buttons["execute"].description == "Commit the transaction"
        panel.dry_run()
        assert "visible to read_committed consumers: 3; the LSO goes from 0 to 3" in panel_text(panel)
        panel.execute("orders-0@1")
        assert isinstance(panel.error, ActionRefused)
        panel.execute(staged.first)
        assert is_done(panel)
        assert "is CompleteCommit" in panel_text(panel)
        assert "A read_committed consumer received 3 of 3 records of it." in panel_text(panel)
        assert {each.transactional_id for each in panel.findings} == {staged.next}, "both partitions were read again"
        panel.select(panel.findings[0])
        assert not is_visible(panel, panel.buttons["dry_run"]), "a checkpoint of a later time decides it"


@pytest.mark.full
@pytest.mark.parametrize("lab", [on_cluster("4.3.1", NEGLECTFUL, id="4.3.1")], indirect=True)
def test_an_overdue_owner_is_fenced(lab: Kafka, trail: Audit) -> None:
    staged = INCIDENTS["overdue"](lab)
    with Cluster(lab.bootstrap_servers) as cluster:
        panel = panel_on(cluster, trail, staged)

        def is_overdue() -> bool | None:
            panel.refresh()
            return finding_of(panel, staged).verdict == "overdue" or None

        until(is_overdue, awaited="the transaction's timeout and 10 s")
        panel.select(finding_of(panel, staged))
        assert panel.buttons["execute"].description == "Fence the id"
        panel.dry_run()
        assert f'A fence of "{staged.transactional_id}" would do this' in panel_text(panel)
        assert "aborted on all of its partitions" in panel_text(panel)
        panel.execute(staged.transactional_id)
        assert is_done(panel)
        assert f"producer {staged.producer_id} epoch {staged.producer_epoch} is fenced" in panel_text(panel)
        assert staged.start_offset not in [each.start_offset for each in panel.findings]


def test_an_error_is_explained_and_the_postmortem_has_what_was_done(
    kafka: Kafka, cluster: Cluster, trail: Audit
) -> None:
    staged = INCIDENTS["never_added"](kafka)
    panel = panel_on(cluster, trail, staged)
    panel.explain("")
    assert "No text was pasted." in panel_text(panel)
    panel.explain(f"ProducerFencedException: There is a newer producer with transactionalId {staged.transactional_id}")
    assert panel.error is None
    assert panel.explained
    assert "producer-fenced" in panel.explained.symptoms
    assert staged.transactional_id in panel_text(panel)
    panel.postmortem()
    assert "No finding is chosen." in panel_text(panel)
    checked(panel, staged)
    panel.execute(f"{staged.topic}-0@{staged.start_offset}")
    panel.postmortem()
    assert (panel.error, panel.step) == (None, "done")
    assert panel.report
    assert "It is over: " in panel.report.markdown
    assert "ABORT marker is at offset" in panel.report.markdown
    assert "| outcome |" in panel.report.markdown
    assert f"| {staged.topic}-0@{staged.start_offset} |" in panel.report.markdown
    assert "The postmortem is ready." in panel_text(panel)


def test_all_that_hang_are_aborted_with_one_confirmation_up_to_the_first_surprise(
    kafka: Kafka, cluster: Cluster, trail: Audit
) -> None:
    """Three hundred that hang were ended one by one, or by the command."""
    last = INCIDENTS["never_added"](kafka, partition=3)
    staged = [*(INCIDENTS["never_added"](kafka, topic=last.topic, partition=number) for number in range(3)), last]
    panel = panel_on(cluster, trail, last)
    assert button(panel, "of all").description == "Plan the abort of all 4 that hang"
    panel.list.search.value = f"{last.topic}-0"
    assert not is_visible(panel, panel.buttons["dry_run_all"]), "one is chosen by itself"
    panel.list.search.value = ""
    panel.dry_run_all()
    assert (panel.step, panel.selected, panel.error) == ("checked", None, None)
    assert "records in them are never read" in panel_text(panel)
    assert not is_visible(panel, panel.buttons["dry_run"])
    for wrong in ("yes", "3 transactions", f"{last.topic}-0@{last.start_offset}"):
        panel.execute(wrong)
        assert isinstance(panel.error, ActionRefused)
        assert panel.step == "checked"
    back = staged[1]
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        owner = TxnProducer(client, back.transactional_id)
        owner.producer_id, owner.producer_epoch = back.producer_id, back.producer_epoch
        owner.add(back.topic, back.partition)  # it resumes after the dry run
        panel.execute("4 transactions")
        assert isinstance(panel.error, ActionRefused)
        assert f"0 of 4 transactions aborted; stopped at {back.topic}-1@{back.start_offset}" in panel_text(panel)
        assert "is ongoing now, not proven to be hanging" in panel_text(panel)
        assert [each.partition for each in panel.findings if each.verdict == "hanging"] == [0, 2, 3]
        owner.end(commit=True)
    panel.refresh()
    panel.dry_run_all()
    panel.execute("3 transactions")
    assert is_done(panel)
    assert "3 of 3 transactions aborted" in panel_text(panel)
    assert not [each for each in panel.findings if each.verdict == "hanging"]
    assert [row["step"] for row in panel.actions] == ["refused"] * 4 + ["intent", "outcome"] * 3
    panel.postmortem()
    assert panel.error is None
