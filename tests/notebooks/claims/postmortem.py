"""Claims of notebook 7."""

from typing import Any


def findings(opened: Any, audit: Any, tables: Any) -> None:
    finished = {row["target"] for row in audit.rows() if row["step"] == "outcome" and not row["error"]}
    assert not audit.unfinished()
    for topic, known in opened.expected.items():
        (row,) = (row for row in tables["findings"] if row["start_offset"] == known["start_offset"])
        was_ended = f"{topic}-{row['partition']}@{row['start_offset']}" in finished
        assert row["verdict"] == ("ended" if was_ended else known["verdict"])
        assert row["producer_id"] == known["producer_id"]


def saved(opened: Any, page: Any, redacted: Any) -> None:
    for topic, known in opened.expected.items():
        place = f"{known['partition']} at offset {known['start_offset']}: "
        assert f"{topic}-{place}" in page.markdown
        assert f"topic-1-{place}" in redacted.markdown
        assert topic not in redacted.markdown
    if opened.kafka:
        assert f'Consumer group "{opened.group}" waited.' in page.summary[1]
        assert "No commit includes these records." in page.markdown
        assert "LSO before" in page.markdown, "the audit trail"
