"""A name of ours for whatever ends a run: ledger, mail and shell show one sentence, not a page of somebody else's."""

import sys
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from tidemark.errors import Interrupted, LakeError, LakeUnreachable, TidemarkError, UnexpectedFailure

Translator = Callable[[Exception], TidemarkError | None]

# Packages above know the errors of their engines: each adds what it can name.
_translators: list[Translator] = []


def translate(translator: Translator) -> Translator:
    """Registers a function that knows the errors of an engine and returns one of ours, or None."""
    _translators.append(translator)
    return translator


@translate
def _of_a_database(error: Exception) -> TidemarkError | None:
    if not isinstance(error, SQLAlchemyError):
        return None  # errors of the control database have been named by then: this is the lake's catalogue
    kind = type(getattr(error, "orig", None) or error).__name__
    return LakeUnreachable(f"the catalogue database of the lake failed ({kind}). Check that it is up, and run again.")


@translate
def _of_the_engine_of_checks(error: Exception) -> TidemarkError | None:
    duckdb = sys.modules.get("duckdb")  # not imported for commands that need none
    if duckdb is None or not isinstance(error, duckdb.Error):
        return None
    if isinstance(error, duckdb.OutOfMemoryException):
        return LakeError(
            "the engine that checks rows ran out of memory. Run `tidemark … maintain` for the subject, which leaves fewer "
            "files, and see that the temporary folder has space."
        )
    # An error of ours that was raised while it read from us comes back as text only.
    return LakeError(f"the engine that reads the lake's files failed ({type(error).__name__}). Run `tidemark doctor`.")


def named(error: BaseException | None, subject: str, step: str | None = None, *, published: bool = False) -> TidemarkError:
    """The error to keep. The words of foreign errors may quote rows and passwords: only their name is kept."""
    if isinstance(error, TidemarkError):
        return error
    where = f" in the step '{step}'" if step else ""
    if error is None or not isinstance(error, Exception):
        words = (
            "after it had published. The next run finishes it" if published else "before it published. Nothing was changed"
        )
        return Interrupted(f"{subject}: the run was stopped{where} {words}; run again.")
    for translator in _translators:
        known = translator(error)
        if known is not None:
            return known
    seen = "What it published stays, and the next run finishes it" if published else "Nothing was published"
    return UnexpectedFailure(
        f"{subject}: {type(error).__name__}{where}, which Tidemark has no name for. {seen}; the log has the details."
    )
