"""The dashboard: what every queue holds and how it moves, and hands to help with.

Server-rendered pages that keep themselves up to date with server-sent events. The broker
serves it at `/`; `pillarbox dashboard URL...` serves it for stores, Redis and SQS.
"""

from pillarbox.extras import extra as _extra

with _extra("broker", "the dashboard"):
    from pillarbox.dashboard.boxes import BrokerBoxes, UrlBoxes
    from pillarbox.dashboard.dashboard import Dashboard, mount
    from pillarbox.dashboard.pipelines import Pipelines

__all__ = ["BrokerBoxes", "Dashboard", "Pipelines", "UrlBoxes", "mount"]
