"""What workers do, for those who watch: OpenTelemetry traces and Prometheus metrics.

Both only subscribe to a dispatcher, so neither can harm a worker. Needs `pillarbox[telemetry]`.
"""

from pillarbox.telemetry.metrics import measure
from pillarbox.telemetry.tracing import sending, trace

__all__ = ["measure", "sending", "trace"]
