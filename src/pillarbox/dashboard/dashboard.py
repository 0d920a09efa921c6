"""The HTTP requests of the dashboard: pages, event streams and actions.

Actions are POST requests with the CSRF token of this process, refused in read-only mode. The
server rejects cross-origin requests before they get here.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote

import msgspec

from pillarbox.broker.http import Answer, Request, Response, StreamingResponse
from pillarbox.core.errors import MailboxError
from pillarbox.dashboard import actions, browse, render
from pillarbox.dashboard.mailboxes import STATES, BrokerMailboxes, Mailboxes
from pillarbox.dashboard.pipelines import Pipelines
from pillarbox.dashboard.samples import Samples
from pillarbox.logger import logger
from pillarbox.mailbox.protocol import Mailbox

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

ROOT = "/dashboard"
REFRESH_SECONDS = 1.0
IDLE_SECONDS = 600  # stop sampling if there was no request for this long

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
        self.pipelines = pipelines or Pipelines(())
        self._token = secrets.token_urlsafe(24)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sampler: asyncio.Task[None] | None = None
        self._used_at = 0.0
        self._tasks: set[asyncio.Future[None]] = set()

    def handle(self, request: Request) -> Answer:
        """Answer a request below `/dashboard`, or for the root."""
        self._loop = asyncio.get_running_loop()
        self._used_at = self._loop.time()
        if self._sampler is None or self._sampler.done():
            self._sampler = self._loop.create_task(self._sample())
        return asyncio.to_thread(self._answer, request)

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
        except MailboxError as error:
            return self._problem(409, str(error))

    def _page(self, path: str, query: Mapping[str, str]) -> Response:
        head, _, rest = path.partition("/")
        if head == "static":
            found = render.asset(rest)
            if found is None:
                raise NotFoundError(f"There is no file {rest!r}.")
            return found
        if path == "stream":
            return self._stream(lambda: self._tables(query.get("search", "")))
        if head == "pipelines" and rest:
            return self._pipeline(rest)
        if head == "queues" and rest:
            return self._queue_page(rest, query)
        if path:
            raise NotFoundError("There is no such page.")
        self.samples.take()
        table = self.samples.table(query.get("search", ""))
        return self._render("home.html", table=table, pipelines=self.pipelines.summaries())

    def _queue_page(self, path: str, query: Mapping[str, str]) -> Response:
        name, _, what = path.partition("/")
        box = self._box(name)
        if what == "stream":
            return self._stream(lambda: self._figures(name))
        if what == "series":
            return self._series(name)
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
        dead = box.dead_letters
        return self._render(
            "queue.html",
            name=name,
            state=state,
            search=search,
            shown=shown,
            row=self.samples.row(name),
            dead_name=dead.name if dead is not None else None,
            done=query.get("done", ""),
        )

    def _message(self, box: Mailbox[bytes], message_id: str) -> Response:
        found = self.mailboxes.find(box.name, message_id)
        if found is None:
            raise NotFoundError("This message is gone, or too far back in the queue to be shown.")
        steps = self.mailboxes.history(box.name, message_id)
        shown = browse.show(*found)
        return self._render("message.html", name=box.name, message=shown, steps=steps)

    def _pipeline(self, name: str) -> Response:
        name, _, what = name.partition("/")
        found = self.pipelines.find(name)
        if found is not None and what == "graph.svg":
            return render.picture(found.drawing)
        if found is not None and what == "stream":
            return self._stream(lambda: self._processors(name))
        if found is None or what:
            raise NotFoundError(f"There is no pipeline {name!r} here.")
        return self._render("pipeline.html", pipeline=found)

    def _series(self, name: str) -> Response:
        """The data of the charts: one list per line."""
        kept = self.samples.of(name)
        last = kept[-1].at if kept else 0.0
        series: list[list[float | None]] = [
            [round(s.at - last, 1) for s in kept],
            [s.stats.ready for s in kept],
            [s.stats.in_flight for s in kept],
            [s.stats.scheduled for s in kept],
            [s.stats.oldest_age_seconds for s in kept],
            [s.totals.sent if s.totals else None for s in kept],
            [s.totals.done if s.totals else None for s in kept],
        ]
        headers = {**render.HEADERS, "Content-Type": "application/json"}
        return Response(200, msgspec.json.encode(series), headers)

    def _box(self, name: str) -> Mailbox[bytes]:
        box = self.mailboxes.open(name)
        if box is None:
            raise NotFoundError(f"There is no queue {name!r} here.")
        return box

    async def _sample(self) -> None:
        """Take samples until the dashboard has been idle for a while."""
        loop = asyncio.get_running_loop()
        while loop.time() - self._used_at < IDLE_SECONDS:
            await asyncio.to_thread(self.samples.take)
            await asyncio.sleep(REFRESH_SECONDS)

    def _stream(self, fragments: Callable[[], Fragments]) -> StreamingResponse:
        headers = {**render.HEADERS, "Content-Type": "text/event-stream"}
        headers["Cache-Control"] = "no-store"
        return StreamingResponse(headers=headers, chunks=self._events(fragments))

    async def _events(self, fragments: Callable[[], Fragments]) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            self._used_at = asyncio.get_running_loop().time()
            for kind, text in fragments().items():
                data = "".join(f"data: {line}\n" for line in text.splitlines())
                yield f"event: {kind}\n{data}\n".encode("utf-8", "replace")

    def _tables(self, search: str) -> Fragments:
        values = {"table": self.samples.table(search), "pipelines": self.pipelines.summaries()}
        return {
            "rows": render.fragment("rows.html", **values, root=ROOT),
            "pipelines": render.fragment("pipelines.html", **values, root=ROOT),
        }

    def _figures(self, name: str) -> Fragments:
        if not self.samples.of(name):
            return {}  # the queue is gone
        return {"figures": render.fragment("figures.html", row=self.samples.row(name))}

    def _processors(self, name: str) -> Fragments:
        found = self.pipelines.find(name)
        if found is None:
            return {}
        return {"processors": render.fragment("processors.html", pipeline=found)}

    def _change(self, request: Request, path: str) -> Response:
        head, _, rest = path.partition("/")
        name, _, verb = rest.partition("/")
        if head != "queues" or verb not in actions.VERBS:
            raise NotFoundError("There is no such action.")
        form = _values(request.body.decode("utf-8", "replace"))
        token = form.pop("token", "")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return self._problem(403, "This form has expired: go back and reload the page.")
        if self.read_only:
            return self._problem(403, "This dashboard is read-only.")
        answer = actions.VERBS[verb](self.mailboxes, self._box(name), form)
        if answer.rest is not None:
            self._continue(answer.rest, REFRESH_SECONDS if answer.paced else 0)
        if answer.dry:
            return self._render("answer.html", text=answer.text)
        return render.redirect(f"{ROOT}/queues/{quote(name)}?done={quote(answer.text)}")

    def _continue(self, rest: Iterator[int], pause_seconds: float) -> None:
        """Continue an action in the background; an error ends it and is logged."""

        async def steps() -> None:
            try:
                while True:
                    step = await asyncio.to_thread(next, rest, None)
                    if step is None:
                        return
                    await asyncio.sleep(pause_seconds)
            except MailboxError as error:
                logger.error("redrive from the dashboard failed", error=str(error))

        if self._loop is not None:
            self._loop.call_soon_threadsafe(lambda: self._tasks.add(asyncio.ensure_future(steps())))

    def _render(self, template: str, **values: Any) -> Response:
        return render.page(
            template,
            **values,
            title=self.mailboxes.title,
            root=ROOT,
            token=self._token,
            read_only=self.read_only,
        )

    def _problem(self, status: int, text: str) -> Response:
        return render.page(
            "problem.html", status, text=text, title=self.mailboxes.title, root=ROOT, code=status
        )


def _values(query: str) -> dict[str, str]:
    fields = parse_qs(query, keep_blank_values=True, max_num_fields=1_000, errors="replace")
    return {name: "\n".join(values) for name, values in fields.items()}


def mount(
    broker: Broker, *, read_only: bool = False, pipelines: Pipelines | None = None
) -> Dashboard:
    """Serve the dashboard of a broker's queues at `/` and below `/dashboard`."""
    dashboard = Dashboard(BrokerMailboxes(broker), read_only=read_only, pipelines=pipelines)
    handle = broker.guarded(dashboard.handle)
    broker.routes.add("/", handle)
    broker.routes.add(ROOT, handle)
    return dashboard
