"""Says when a run has failed for good: one notice a failure, by mail and to a webhook, whichever the configuration has."""

import json
import re
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage

from dagster import (
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRecord,
    RunsFilter,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, WILL_RETRY_TAG

from platform_assets.automation import UPKEEP
from platform_assets.dead_runs import location_of
from platform_assets.keys import landed_key, model_key
from platform_assets.launch import error_of
from platform_assets.upkeep import dagster_retention
from resources.platform import PlatformResource
from resources.runs import OURS
from resources.tags import REPORTED, STARTED_BY, subjects_of
from tidemark.address import MODEL, STREAM
from tidemark.config import Config, EmailSettings
from tidemark.config.unattended import WebhookSettings
from tidemark.control import ControlDatabase
from tidemark.control.runs import COUNTING
from tidemark.errors import RunInProgress
from tidemark.runs.system import known_subjects, system_of, systems

# Dagster gives an evaluation 60 seconds.
SENDING_SECONDS, EVALUATION_SECONDS = 8.0, 40.0
# Dagster says at once that it will try a run again, and does so within seconds. If it cannot, it does not come back to it.
RETRIED_WITHIN = timedelta(minutes=2)
UNATTENDED = ("schedule", "sensor")
# Jobs of ours whose runs are of no subject.
WITHOUT_SUBJECT = (dagster_retention.name,)
# `…-mail` and `…-webhook`: the run whose notice was refused there, how often, and since when. A retry inherits the tags of
# its parent, so the run is part of the value.
REFUSED = "tidemark/refused"
# A notice that was refused so often, for so long, will not be taken any more: it must not hold the cursor for ever.
REFUSALS, GIVEN_UP_AFTER = 5, timedelta(hours=24)
# If a channel refuses that many notices, it is more likely its own fault than theirs.
REFUSALS_AT_ONCE = 2
# Answers of a web server that are about itself or the settings, not about what was posted.
NOT_ABOUT_THE_NOTICE = (401, 403, 404, 407, 408, 429, 502, 503, 504)

Channel = Callable[["Notice"], None]


@dataclass(frozen=True)
class SubjectFailure:
    """What one subject of a failed run met with."""

    subject: str
    run_id: str
    error: str
    command: str


@dataclass(frozen=True)
class Notice:
    """A Dagster run that failed and is not tried again."""

    job: str
    dagster_run: str
    started_by: str
    failures: tuple[SubjectFailure, ...]

    @property
    def title(self) -> str:
        first, others = self.failures[0].subject, len(self.failures) - 1
        return f"Tidemark: {first} failed" if not others else f"Tidemark: {first} and {others} more failed"


@sensor(
    minimum_interval_seconds=30,
    default_status=DefaultSensorStatus.RUNNING,
    description="Reports a run that failed for good. Needs `email:` or `webhook:` in the configuration.",
)
def notify_on_failure(context: SensorEvaluationContext, platform: PlatformResource) -> SkipReason:
    """A failure stays due until it was reported, which its run then says: a daemon that is killed forgets none, and repeats
    none. Runs of the command line, which belong to no code location, are looked at like all others."""
    opened, instance, now = platform.platform, context.instance, datetime.now(UTC)
    channels, since = channels_of(opened.config), _moment(context.cursor)
    if since is None or not channels:
        context.update_cursor(str(now.timestamp()))
        return SkipReason("from now on" if channels else "neither `email:` nor `webhook:` is in the configuration")
    origin, stop, due = context.code_location_origin, time.monotonic() + EVALUATION_SECONDS, []
    is_ours, post_office = ours(opened.config, origin.location_name if origin else None), PostOffice(instance, channels, now)
    for record in sorted(_failed_since(instance, since), key=lambda each: post_office.order(each.dagster_run)):
        run = record.dagster_run
        if not post_office.missing(run) or not is_ours(run) or was_tried_again(instance, run):
            continue
        if time.monotonic() > stop or not post_office.serves(run) or may_be_tried_again(record, now):
            due.append(record)
            continue
        notice = described(instance, opened.control, run)
        if not is_done_by_another(run, notice) and not post_office.send(run, notice):
            due.append(record)
    seen = min((each.update_timestamp for each in due), default=now)
    # Not past a failure that is being written down right now.
    context.update_cursor(str(min(seen, now - RETRIED_WITHIN).timestamp() - 1))
    return SkipReason("; ".join([*post_office.sent, *post_office.wrong]) or "no run has failed for good")


def ours(config: Config, location: str | None) -> Callable[[DagsterRun], bool]:
    """Whether a run is reported from here. Hosts that share an instance have subjects of their own: each reports its own."""
    try:
        known = known_subjects(config)
    except Exception:
        # A file of the project is broken, which is when runs fail: what Dagster knows of a run has to do.
        known = None

    def is_here(run: DagsterRun) -> bool:
        return location is None or location_of(run) in (None, location)

    def is_ours(run: DagsterRun) -> bool:
        subjects = subjects_of(run.tags)
        if not subjects:
            return run.job_name in WITHOUT_SUBJECT and is_here(run)
        if known is not None:
            # A file that cannot be read may name it, here or on another host.
            return any(map(known.surely, subjects)) or (is_here(run) and any(each in known for each in subjects))
        return is_here(run) and any(each.partition("/")[0] in systems() for each in subjects)

    return is_ours


def _moment(cursor: str | None) -> datetime | None:
    """How far failures were looked at. An earlier version used Dagster's sensor of failures, which kept its moment too."""
    try:
        return datetime.fromtimestamp(float(cursor or ""), UTC)
    except ValueError:
        found = re.search(r'"update_timestamp": "([^"]+)"', cursor or "")
    try:
        return datetime.fromisoformat(found[1]).astimezone(UTC) if found else None
    except ValueError:
        return None


def _failed_since(instance: DagsterInstance, since: datetime) -> list[RunRecord]:
    """The oldest first."""
    wanted = RunsFilter(statuses=[DagsterRunStatus.FAILURE], updated_after=since)
    return sorted(instance.get_run_records(wanted), key=lambda record: record.update_timestamp)


def was_tried_again(instance: DagsterInstance, run: DagsterRun) -> bool:
    """Then the last failure is the one that is reported."""
    if run.tags.get(WILL_RETRY_TAG) != "true":
        return False
    return bool(instance.get_runs(RunsFilter(tags={PARENT_RUN_ID_TAG: run.run_id}), limit=1))


def may_be_tried_again(record: RunRecord, now: datetime) -> bool:
    """Dagster says whether it will only after it has said that the run failed: until then nobody knows."""
    ended = record.end_time or record.update_timestamp.timestamp()
    is_young = now - datetime.fromtimestamp(ended, UTC) < RETRIED_WITHIN
    return is_young and record.dagster_run.tags.get(WILL_RETRY_TAG) != "false"


def is_done_by_another(run: DagsterRun, notice: Notice) -> bool:
    """Another run was at it already, and does what this one was for. Nobody else does the upkeep that gave up waiting."""
    is_unattended = run.tags.get(STARTED_BY) in UNATTENDED and run.job_name != UPKEEP
    return is_unattended and all(_was_busy(each) for each in notice.failures)


class PostOffice:
    """Sends notices in one evaluation, through each channel as long as that takes any."""

    def __init__(self, instance: DagsterInstance, channels: Mapping[str, Channel], now: datetime) -> None:
        self.instance, self.now = instance, now
        self.configured, self.tried = channels, dict(channels)
        self.refused: Counter[str] = Counter()
        self.sent: list[str] = []
        self.wrong: list[str] = []

    def missing(self, run: DagsterRun) -> list[str]:
        """The channels that have yet to take a notice of the run, whether they can be reached or not."""
        return [name for name in self.configured if not self._is_reported(run, name) and not self._is_given_up(run, name)]

    def serves(self, run: DagsterRun) -> bool:
        """Whether any of them is still tried."""
        return not self.tried.keys().isdisjoint(self.missing(run))

    def order(self, run: DagsterRun) -> tuple[int, bool]:
        """What was refused goes last. Else those first that nobody has heard of: a channel that is away must not keep
        another from the newest failure."""
        refusals = max((_refusals(run, name)[0] for name in self.missing(run)), default=0)
        return refusals, any(self._is_reported(run, name) for name in self.configured)

    def send(self, run: DagsterRun, notice: Notice) -> bool:
        """Whether nothing remains to be sent of the run."""
        missing = self.missing(run)
        # What is away is tried once in an evaluation.
        settled = [self._send(name, run, notice) for name in missing if name in self.tried]
        return len(settled) == len(missing) and all(settled)

    def _send(self, name: str, run: DagsterRun, notice: Notice) -> bool:
        try:
            self.tried[name](notice)
        except Exception as error:
            self.wrong.append(f"{name} did not take the notice of {run.run_id}: {type(error).__name__}")
            if takes_nothing(error):
                del self.tried[name]
                return False
            return self._note_refusal(name, run)
        self.instance.add_run_tags(run.run_id, {f"{REPORTED}-{name}": run.run_id})
        self.sent.append(f"reported {run.run_id} by {name}")
        return True

    def _note_refusal(self, name: str, run: DagsterRun) -> bool:
        """Whether the notice is given up."""
        self.refused[name] += 1
        if self.refused[name] == REFUSALS_AT_ONCE:
            del self.tried[name]
        count, since = _refusals(run, name)
        since = since or self.now.timestamp()
        is_old = count >= REFUSALS and self.now.timestamp() - since > GIVEN_UP_AFTER.total_seconds()
        # A channel that takes nothing at all is at fault itself: then nothing is given up.
        is_given_up = is_old and self._took_another(name, since)
        if is_given_up:
            self.wrong.append(f"{name} is given up for {run.run_id}")
        noted = "|".join((run.run_id, str(count + 1), str(since), *(["given up"] if is_given_up else [])))
        self.instance.add_run_tags(run.run_id, {f"{REFUSED}-{name}": noted})
        return is_given_up

    def _took_another(self, name: str, since: float) -> bool:
        failed = _failed_since(self.instance, datetime.fromtimestamp(since, UTC))
        return any(self._is_reported(each.dagster_run, name) for each in failed)

    @staticmethod
    def _is_reported(run: DagsterRun, name: str) -> bool:
        return run.tags.get(f"{REPORTED}-{name}") == run.run_id

    @staticmethod
    def _is_given_up(run: DagsterRun, name: str) -> bool:
        noted = run.tags.get(f"{REFUSED}-{name}", "")
        return noted.startswith(f"{run.run_id}|") and noted.endswith("|given up")


def _refusals(run: DagsterRun, name: str) -> tuple[int, float]:
    """How often a channel refused the notice of the run, and since when."""
    of, count, since, *_ = [*run.tags.get(f"{REFUSED}-{name}", "").split("|"), "", ""]
    try:
        return (int(count), float(since)) if of == run.run_id else (0, 0.0)
    except ValueError:
        return 0, 0.0


def takes_nothing(error: Exception) -> bool:
    """Whether a channel would not take any other notice either: it is away, or does not know us."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in NOT_ABOUT_THE_NOTICE
    # The size of a mail is sent with its sender. The recipients are the same for all.
    about_the_notice = (smtplib.SMTPDataError, smtplib.SMTPSenderRefused)
    return isinstance(error, OSError) and not isinstance(error, about_the_notice)


# --- what a notice says ----------------------------------------------------------------------------------------------


def described(instance: DagsterInstance, control: ControlDatabase, run: DagsterRun) -> Notice:
    """A run that cannot be described failed all the same, and keeps no other from being reported."""
    try:
        return notice_of(instance, control, run)
    except Exception as error:
        words = f"what it met with could not be read ({type(error).__name__}); see the run in `tidemark ui`."
        return _notice(run, [_failure(each, run.run_id, words) for each in _names(run)])


def notice_of(instance: DagsterInstance, control: ControlDatabase, run: DagsterRun) -> Notice:
    """What a notice may say: our own errors hold no secret and no value of state. Others are said by name only."""
    rows = [row for row in control.runs.carried_by(run.run_id) if row.status not in COUNTING]
    closed = next((each.message or "" for each in _events(instance, run, DagsterEventType.RUN_FAILURE)), "")
    gone = closed if closed.startswith(OURS) else f"{OURS}the run ended without a word; see its log."
    found = [_failure(row.subject, row.run_id, row.error or gone.removeprefix(OURS)) for row in rows]
    named, words = {each.subject for each in found}, {each.error for each in found}
    for event in _events(instance, run, DagsterEventType.STEP_FAILURE):
        failed = event.step_failure_data.error
        subject = _subject_of_step(event.step_key or "", run) or _subject_named(str(error_of(failed, "")), run)
        error = error_of(failed, subject or run.job_name)
        said = f"{type(error).__name__}: {error}"
        # A step that failed before its subject had a row, or that Dagster stopped.
        if subject in named or (subject is None and said in words):
            continue
        words.add(said)
        failure = _failure(subject or run.job_name, run.run_id, said)
        if failure not in found:
            found.append(failure)
    return _notice(run, found or [_failure(_names(run)[0], run.run_id, gone.removeprefix(OURS))])


def _notice(run: DagsterRun, failures: list[SubjectFailure]) -> Notice:
    return Notice(run.job_name, run.run_id, run.tags.get(STARTED_BY, "web UI"), tuple(failures))


def _names(run: DagsterRun) -> list[str]:
    """What a run is of: its subjects, or its job where it has none."""
    return subjects_of(run.tags) or [run.job_name]


def _subject_of_step(step: str, run: DagsterRun) -> str | None:
    """The subject whose step it is: steps are named after assets, which are named after their subjects."""
    known = _names(run)
    return known[0] if len(known) == 1 else max((each for each in known if _is_step_of(step, each)), key=len, default=None)


def _is_step_of(step: str, subject: str) -> bool:
    system, *parts = subject.split("/")
    if system == STREAM and len(parts) == 3:
        return step.startswith("__".join([*landed_key(*parts[1:]).path[:-1], ""]))
    return system == MODEL and step == "__".join(model_key("/".join(parts)).path)


def _subject_named(words: str, run: DagsterRun) -> str | None:
    """The subject whose whole address is in the words: one may begin as another does."""
    longest_first = sorted(subjects_of(run.tags), key=len, reverse=True)
    return next((each for each in longest_first if re.search(rf"(?<![\w./-]){re.escape(each)}(?![\w/-]|\.\w)", words)), None)


def _events(instance: DagsterInstance, run: DagsterRun, of_type: DagsterEventType) -> Iterator[DagsterEvent]:
    for record in instance.get_records_for_run(run.run_id, of_type=of_type).records:
        if record.event_log_entry.dagster_event:
            yield record.event_log_entry.dagster_event


def _failure(subject: str, run_id: str, error: str) -> SubjectFailure:
    if subject.partition("/")[0] not in systems():
        return SubjectFailure(subject, run_id, error, "tidemark ui")
    system = system_of(subject)
    return SubjectFailure(subject, run_id, error, f"tidemark {system.noun} history {system.name(subject)}")


def _was_busy(failure: SubjectFailure) -> bool:
    return failure.error.startswith(RunInProgress.__name__)


# --- channels --------------------------------------------------------------------------------------------------------


def channels_of(config: Config) -> dict[str, Channel]:
    """How notices are sent, by name."""
    email, webhook, found = config.email, config.webhook, {}
    if email is not None:
        found["mail"] = lambda notice: send_mail(email, message(email, notice))
    if webhook is not None:
        found["webhook"] = lambda notice: post(webhook, notice)
    return found


def message(settings: EmailSettings, notice: Notice) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = settings.sender, ", ".join(settings.to)
    mail["Subject"] = notice.title
    parts = [
        f"{each.subject}, run {each.run_id}:\n\n    {each.error}\n\n`{each.command}` shows its runs.\n"
        for each in notice.failures
    ]
    parts.append(
        f"The job was {notice.job}, started by {notice.started_by} (Dagster run {notice.dagster_run}). The next run "
        "recovers automatically.\n"
    )
    mail.set_content("\n".join(parts))
    return mail


def send_mail(settings: EmailSettings, mail: EmailMessage) -> None:
    with smtplib.SMTP(settings.host, settings.port, timeout=SENDING_SECONDS) as server:
        if settings.starttls:
            server.starttls(context=ssl.create_default_context())
        if settings.username and settings.password:
            server.login(settings.username, settings.password.get_secret_value())
        server.send_message(mail)


def post(settings: WebhookSettings, notice: Notice) -> None:
    body = json.dumps({"event": "run_failed", "title": notice.title, **asdict(notice)}).encode()
    headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
    request = urllib.request.Request(
        settings.url.get_secret_value(), body, {"Content-Type": "application/json", **headers}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=SENDING_SECONDS):
        pass
