"""The dashboard: queues, messages and pipelines in the browser.

Server-rendered pages, kept up to date with server-sent events. The broker serves it at `/`;
`pillarbox dashboard URL...` serves it for stores, Redis and SQS.
"""

from pillarbox.extras import extra as _extra

with _extra("broker", "the dashboard"):
    from pillarbox.dashboard.dashboard import Dashboard, mount
    from pillarbox.dashboard.mailboxes import BrokerMailboxes, UrlMailboxes
    from pillarbox.dashboard.pipelines import Pipelines

__all__ = ["BrokerMailboxes", "Dashboard", "Pipelines", "UrlMailboxes", "mount"]
