"""The confirmation that every action requires."""

from __future__ import annotations

from toolkit.errors import ActionRefused


def check_confirmation(confirm: str, target: str, *, means: str) -> None:
    """Raise unless the confirmation is exactly the target.

    Parameters
    ----------
    confirm
        The typed text.
    target
        The required text.
    means
        What the refusal means, as a sentence.

    Raises
    ------
    ActionRefused
        If they differ.
    """
    if confirm != target:
        raise ActionRefused(
            f"The confirmation {confirm!r} does not name {target!r}.",
            means=means,
            do=f"To continue, confirm with exactly {target}.",
        )
