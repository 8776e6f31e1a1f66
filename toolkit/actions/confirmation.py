"""The word of a person, which every action asks for."""

from __future__ import annotations

from toolkit.errors import ActionRefused

__all__ = ["check_confirmation"]


def check_confirmation(confirm: str, target: str, *, means: str) -> None:
    """Refuse whatever is not exactly the name of what is to be changed.

    Parameters
    ----------
    confirm
        What was typed.
    target
        What it has to be.
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
            do=f"To go on, confirm with exactly {target}.",
        )
