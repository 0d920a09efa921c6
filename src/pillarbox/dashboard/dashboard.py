"""The HTTP requests of the dashboard: pages, event streams and actions.

Actions are POST requests with a CSRF token, and are refused in read-only mode. The server rejects
cross-origin requests before they reach this module.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote

import msgspec

from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Answer, Request, Response, StreamingResponse
from pillarbox.core.errors import MailboxError
from pillarbox.dashboard import actions, browse, render
from pillarbox.dashboard.mailboxes import STATES, BrokerMailboxes, Mailboxes
from pillarbox.dashboard.pipelines import Pipelines
from pillarbox.dashboard.rings import SPANS, Point
from pillarbox.dashboard.samples import SHORT_SPAN, SORT_KEYS, Samples, Table
from pillarbox.dashboard.store_mailboxes import StoreMailboxes
from pillarbox.dashboard.workers import WorkerRow, Workers
from pillarbox.log import LogError
from pillarbox.logger import logger
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.shared import StaleQueueError
from pillarbox.mailbox.url import without_password
from pillarbox.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

ROOT = "/dashboard"
REFRESH_SECONDS = 1.0
QUIET_SECONDS = 4.0  # between samples without viewers; less than an interval of the charts
SAVE_SECONDS = 60  # between two saves of the history
IDLE_SECONDS = 60  # there are no viewers if there was no request for this long
TABLE_ROWS_MAX = 20  # in the table next to a chart

Fragments = dict[str, str]  # HTML fragments by event name


class NotFoundError(Exception):
    """There is no such page."""


class Dashboard:
    """Serves all pages."""

    def __init__(
        self, boxes: Mailboxes, *, read_only: bool = False, pipelines: Pipelines | None = None
    ) -> None:
        self.mailboxes = boxes
        self.read_only = read_only
        self.samples = Samples(boxes)
        self.workers = Workers(boxes)
        self.pipelines = pipelines or Pipelines(())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sampler: asyncio.Task[None] | None = None
        self._used_at = 0.0
        self._redrives: dict[str, asyncio.Future[None]] = {}  # in the background, by queue
        self.on_change: Callable[[Request, str, str], None] = lambda *_: None  # for an audit log

    @property
    def _token(self) -> str:
        """The CSRF token of forms, which is the same for all brokers of a shared store."""
        return self._sign("form")

    def _sign(self, text: str) -> str:
        return hmac.digest(self.mailboxes.secret, text.encode(), "sha256").hex()[:32]

    def handle(self, request: Request) -> Answer:
        """Respond to a request for `/`, or below `/dashboard`."""
        self.start()
        self._used_at = asyncio.get_running_loop().time()
        return asyncio.to_thread(self._answer, request)

    def start(self) -> None:
        """Start taking samples; the first request does so, too."""
        self._loop = asyncio.get_running_loop()
        if self._sampler is None or self._sampler.done():
            self._sampler = self._loop.create_task(self._sample())

    def _answer(self, request: Request) -> Response:
        path = unquote(request.path).removeprefix(ROOT).strip("/")
        query = _values(request.query)
        try:
            if request.method == "POST":
                return self._change(request, path)
            if request.method not in ("GET", "HEAD"):
                return self._problem(405, "Only GET and POST are supported.")
            return self._page(path, query)
        except NotFoundError as error:
            return self._problem(404, str(error))
        except SqsError as error:
            return self._problem(409, error.message)
        except StaleQueueError:
            return self._problem(409, "The queue was changed meanwhile: go back and try again.")
        except (MailboxError, PipelineError, LogError, ImportError) as error:
            return self._problem(409, str(error))

    def _page(self, path: str, query: Mapping[str, str]) -> Response:
        head, _, rest = path.partition("/")
        if head == "static":
            asset = render.asset(rest)
            if asset is None:
                raise NotFoundError("There is no such file.")
            return asset
        if path == "stream":
            return self._stream(lambda: self._tables(query))
        if head == "pipelines" and rest:
            return self._pipeline(rest, query)
        if head == "queues" and rest:
            return self._queue_page(rest, query)
        if path:
            raise NotFoundError("There is no such page.")
        self.mailboxes.refresh()
        self.samples.take()
        return self._render(
            "home.html",
            table=self._table(query),
            workers=self._workers(),
            brokers=self.mailboxes.brokers(),
            pipelines=self.pipelines.summaries(),
            address=self.mailboxes.address,
            done=self._notice_in(query),
        )

    def _workers(self, queue: str | None = None) -> list[WorkerRow] | None:
        return self.workers.rows(queue) if self.workers.known else None

    def _table(self, query: Mapping[str, str]) -> Table:
        sort = query.get("sort", "")
        return self.samples.table(query.get("search", ""), sort if sort in SORT_KEYS else "")

    def _queue_page(self, path: str, query: Mapping[str, str]) -> Response:
        name, _, what = path.partition("/")
        box = self._box(name)
        if what == "stream":
            return self._stream(lambda: self._figures(name))
        if what == "series":
            return self._series(name, _span(query))
        if what == "message":
            return self._message(box, query.get("id", ""))
        state = query.get("state", "ready")
        if state not in STATES or what:
            raise NotFoundError("There is no such page.")
        offset = int(text) if (text := query.get("offset", "")[:9]).isdecimal() else 0
        search = query.get("search", "")
        shown = browse.browse(self.mailboxes, name, state, offset, search)
        self.samples.keep_history(name)
        self.samples.take([name])
        row = self.samples.row(name)
        if row is None:
            raise NotFoundError("There is no such queue here.")
        points, admin = self.samples.points(name, _span(query)), self.mailboxes.admin
        return self._render(
            "queue.html",
            name=name,
            state=state,
            search=search,
            shown=shown,
            row=row,
            workers=self._workers(name),
            dead_name=row.dead_name,
            sources=self.samples.sources(name),
            settings=admin.settings(name) if admin is not None else None,
            tags=admin.tags(name) if admin is not None else {},
            span=_span(query),
            spans=list(SPANS),
            points=points[:: -max(1, -(-len(points) // TABLE_ROWS_MAX))],
            done=self._notice_in(query),
        )

    def _message(self, box: Mailbox[bytes], message_id: str) -> Response:
        found = self.mailboxes.find(box.name, message_id)
        if found is None:
            raise NotFoundError("This message is gone, or too far back in the queue to be shown.")
        steps = self.mailboxes.history(box.name, message_id)
        times = self.mailboxes.times(box.name, found.state, browse.SEARCH_MAX, 0)
        shown = browse.MessageView(*found, times.get(message_id))
        return self._render(
            "message.html", name=box.name, message=found.message, shown=shown, steps=steps
        )

    def _pipeline(self, path: str, query: Mapping[str, str]) -> Response:
        name, _, what = path.partition("/")
        found = self.pipelines.find(name)
        if found is None or what not in ("", "failed", "graph.svg", "stream"):
            raise NotFoundError("There is no such pipeline here.")
        if what == "graph.svg":
            return render.picture(found.drawing)
        if what == "stream":
            return self._stream(lambda: self._processors(name))
        if not what:
            return self._render("pipeline.html", pipeline=found)
        processor = query.get("processor", "")
        if processor not in found.status.processors:
            raise NotFoundError("There is no such processor here.")
        return self._render(
            "failed.html",
            pipeline=found,
            processor=processor,
            failed=found.failures(processor),
            done=self._notice_in(query),
        )

    def _series(self, name: str, span: str) -> Response:
        """Return the data of the charts as JSON: one list per line."""
        points = self.samples.points(name, span)
        lists = [list(each) for each in zip(*points, strict=True)] or [[] for _ in Point._fields]
        lists[0] = [-(before or 0.0) for before in lists[0]]
        return Response(200, msgspec.json.encode(lists), render.headers("application/json"))

    def _box(self, name: str) -> Mailbox[bytes]:
        box = self.mailboxes.open(name)
        if box is None:
            raise NotFoundError("There is no such queue here.")
        return box

    async def _sample(self) -> None:
        """Take samples: often while there are viewers, else often enough for the history."""
        loop = asyncio.get_running_loop()
        saved_at = loop.time()
        try:
            while True:
                with suppress(MailboxError):  # the store is away: leave a gap in the charts
                    await asyncio.to_thread(self.samples.take)
                await asyncio.to_thread(self.workers.take)
                if loop.time() - saved_at >= SAVE_SECONDS:
                    saved_at = loop.time()
                    await asyncio.to_thread(self.samples.save)
                watched = loop.time() - self._used_at < IDLE_SECONDS
                await asyncio.sleep(REFRESH_SECONDS if watched else QUIET_SECONDS)
        finally:  # the broker stops
            self.samples.save()

    def _stream(self, fragments: Callable[[], Fragments]) -> StreamingResponse:
        headers = render.headers("text/event-stream")
        return StreamingResponse(headers=headers, chunks=self._events(fragments))

    async def _events(self, fragments: Callable[[], Fragments]) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            self._used_at = asyncio.get_running_loop().time()
            # In a thread: samples are taken under a lock, and may wait for this event loop.
            for kind, text in (await asyncio.to_thread(fragments)).items():
                data = "".join(f"data: {line}\n" for line in text.splitlines())
                yield f"event: {kind}\n{data}\n".encode("utf-8", "replace")

    def _tables(self, query: Mapping[str, str]) -> Fragments:
        values = {
            "table": self._table(query),
            "workers": self._workers(),
            "brokers": self.mailboxes.brokers(),
            "pipelines": self.pipelines.summaries(),
            "root": ROOT,
            "token": self._token,
            "read_only": self.read_only,
        }
        names = ("rows", "totals", "workers", "brokers", "pipelines")
        return {name: render.fragment(f"{name}.html", **values) for name in names}

    def _figures(self, name: str) -> Fragments:
        row = self.samples.row(name)
        if row is None:
            return {}  # the queue is gone
        values = {"row": row, "workers": self._workers(name), "queue": name, "root": ROOT}
        return {each: render.fragment(f"{each}.html", **values) for each in ("figures", "workers")}

    def _processors(self, name: str) -> Fragments:
        found = self.pipelines.find(name)
        if found is None:
            return {}
        return {"processors": render.fragment("processors.html", pipeline=found, root=ROOT)}

    def _change(self, request: Request, path: str) -> Response:
        head, _, rest = path.partition("/")
        name, _, verb = rest.partition("/")
        verbs = actions.PIPELINE_VERBS if head == "pipelines" else actions.VERBS
        if head not in ("queues", "pipelines") or (verb not in verbs and path != "queues"):
            raise NotFoundError("There is no such action.")
        form = _values(request.body.decode("utf-8", "replace"))
        token = form.pop("token", "")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return self._problem(403, "This form has expired: go back and reload the page.")
        if self.read_only:
            return self._problem(403, "This dashboard is read-only.")
        self.on_change(request, verb or "create", name or form.get("name", ""))
        if head == "pipelines":
            return self._redrive_records(name, form.get("processor", ""))
        if verb == "redrive" and name in self._redrives:
            result = actions.Done("A redrive of this queue is still running.")
        elif rest:
            result = actions.VERBS[verb](self.mailboxes, self._box(name), form)
        else:
            result, name = actions.create(self.mailboxes, form), form.get("name", "").strip()
        self.mailboxes.refresh()
        if result.rest is not None:
            self._continue(name, result.rest, REFRESH_SECONDS if result.paced else 0)
        if result.dry:
            return self._render("answer.html", text=result.text)
        page = ROOT + "/" if result.gone else f"{ROOT}/queues/{quote(name)}"
        return render.redirect(f"{page}?done={self._notice(result.text)}")

    def _redrive_records(self, name: str, processor: str) -> Response:
        found = self.pipelines.find(name)
        if found is None or processor not in found.status.processors:
            raise NotFoundError("There is no such processor here.")
        count = found.redrive(processor)
        page = f"{ROOT}/pipelines/{quote(name)}/failed?processor={quote(processor)}"
        return render.redirect(f"{page}&done={self._notice(f'Redrove {count:,} records.')}")

    def _notice(self, text: str) -> str:
        """Return a signed query parameter that shows a message on the next page."""
        return f"{self._sign(f'notice {text}')}{base64.urlsafe_b64encode(text.encode()).decode()}"

    def _notice_in(self, query: Mapping[str, str]) -> str:
        """Return the message in a query; empty if there is none or its signature is wrong."""
        notice = query.get("done", "")
        try:
            text = base64.urlsafe_b64decode(notice[32:]).decode()
        except ValueError:
            return ""
        signed = hmac.compare_digest(notice[:32].encode(), self._sign(f"notice {text}").encode())
        return text if signed else ""

    def _continue(self, name: str, rest: Iterator[int], pause_seconds: float) -> None:
        """Continue a redrive in the background; an error ends it and is logged."""

        async def steps() -> None:
            try:
                while True:
                    step = await asyncio.to_thread(next, rest, None)
                    if step is None:
                        return
                    await asyncio.sleep(pause_seconds)
            except MailboxError as error:
                logger.error("redrive from the dashboard failed", error=str(error))
            finally:
                self._redrives.pop(name, None)

        def begin() -> None:
            self._redrives[name] = asyncio.ensure_future(steps())

        if self._loop is not None:
            self._loop.call_soon_threadsafe(begin)

    def _render(self, template: str, status: int = 200, **values: Any) -> Response:
        return render.page(
            template,
            status,
            **values,
            title=self.mailboxes.title,
            root=ROOT,
            token=self._token,
            read_only=self.read_only,
            can_change=self.mailboxes.admin is not None and not self.read_only,
        )

    def _problem(self, status: int, text: str) -> Response:
        return self._render("problem.html", status, text=text, code=status)


def _span(query: Mapping[str, str]) -> str:
    return span if (span := query.get("span", "")) in SPANS else SHORT_SPAN


def _values(query: str) -> dict[str, str]:
    fields = parse_qs(query, keep_blank_values=True, max_num_fields=1_000, errors="replace")
    return {name: "\n".join(values) for name, values in fields.items()}


def mount(
    broker: Broker, *, read_only: bool = False, pipelines: Pipelines | None = None
) -> Dashboard:
    """Serve the dashboard of a broker's queues at `/` and below `/dashboard`."""
    boxes: Mailboxes = BrokerMailboxes(broker)
    if broker.shared is not None:
        url = broker.config.store
        title = without_password(url) if url is not None else "a shared store"
        boxes = StoreMailboxes(broker, broker.shared, title)
    dashboard = Dashboard(boxes, read_only=read_only, pipelines=pipelines)

    def note(request: Request, action: str, name: str) -> None:
        if broker.audit is not None:
            key = "" if broker.access.open_to_all else broker.access.known(request).name
            broker.audit.note(key, action, name, by="dashboard")

    dashboard.on_change = note
    handle = broker.guarded(dashboard.handle)
    broker.routes.add("/", handle)
    broker.routes.add(ROOT, handle)
    return dashboard
