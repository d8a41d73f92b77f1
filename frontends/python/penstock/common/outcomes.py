"""The outcomes of a step, by the words of users."""

from penstock import _library as c

_BY_WORD = {"applied": c.STEP_APPLIED, "forget": c.STEP_FORGOTTEN}


def outcome_of(word: str) -> int:
    """STEP_APPLIED for "applied" (the gradients were used), STEP_FORGOTTEN for "forget" (the state
    of compression becomes what it was before the backward). ValueError for other words."""
    if word not in _BY_WORD:
        raise ValueError(f'the outcome of a step is {word!r}, expected "applied" or "forget"')
    return _BY_WORD[word]
