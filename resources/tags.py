"""What every run says about itself in Dagster: the subjects it is of, who started it, and the process that executes it."""

from collections.abc import Iterable, Mapping

from tidemark.control.process import ProcessIdentity, this_process

STARTED_BY = "tidemark/started-by"
PROCESS = "tidemark/process"
# `…-mail` and `…-webhook`: the run whose failure was reported through that channel. A retry inherits the tags of its parent,
# so the value is the run.
REPORTED = "tidemark/reported"
# The address of the run's subject. A run of several has one tag each, `tidemark/subject-2` and so on: all of them in one
# value would be more than PostgreSQL can index.
SUBJECT = "tidemark/subject"


def subject_tags(addresses: Iterable[str]) -> dict[str, str]:
    """The tags of a run of these subjects."""
    return {SUBJECT if number == 1 else f"{SUBJECT}-{number}": each for number, each in enumerate(addresses, 1)}


def subjects_of(tags: Mapping[str, str]) -> list[str]:
    """The subjects that the tags of a run name, in the order they were given."""
    numbered = {key: value for key, value in tags.items() if key == SUBJECT or key.startswith(f"{SUBJECT}-")}
    return [numbered[key] for key in sorted(numbered, key=lambda key: (len(key), key))]


def process_tag(dagster_run: str) -> dict[str, str]:
    """This process, so that others on the machine can see whether it still runs. A retry inherits the tags of its parent,
    so the run that it is about is part of it."""
    me = this_process()
    if me.boot_id is None or me.started is None:
        return {}
    return {PROCESS: "|".join((dagster_run, me.host, me.boot_id, str(me.pid), me.started))}


def process_of(dagster_run: str, tags: Mapping[str, str]) -> ProcessIdentity | None:
    """The process that executes a run, once it has come so far."""
    parts = tags.get(PROCESS, "").split("|")
    if len(parts) != 5 or parts[0] != dagster_run or not parts[3].isdigit():
        return None
    return ProcessIdentity(parts[1], parts[2], int(parts[3]), parts[4])
