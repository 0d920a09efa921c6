"""STS GetCallerIdentity, which Terraform and some SDKs call before they use SQS."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Request, Response
from pillarbox.broker.queue_names import partition
from pillarbox.broker.sigv4 import region_of

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

_ACTION: Final = re.compile(r"(?:^|&)Action=GetCallerIdentity(?:&|\Z)")
_ACTION_BYTES: Final = re.compile(_ACTION.pattern.encode())
_NAMESPACE: Final = "https://sts.amazonaws.com/doc/2011-06-15/"


def is_asked(request: Request) -> bool:
    """Whether this is the action (and not a message with these words in its body)."""
    return bool(_ACTION_BYTES.search(request.body) or _ACTION.search(request.query))


def caller_identity(broker: Broker, request: Request) -> Response:
    """Return the identity of the key that signed; raise SqsError for an unknown key."""
    principal = broker.access.principal(request, "sts")
    name, account, request_id = principal.name, principal.account, broker.next_request_id()
    where = partition(region_of(request) or broker.config.region)
    who = f"user/{name}" if name else "root"
    text = (
        f'<GetCallerIdentityResponse xmlns="{_NAMESPACE}"><GetCallerIdentityResult>'
        f"<Arn>arn:{where}:iam::{account}:{escape(who)}</Arn>"
        f"<UserId>{escape(name or account)}</UserId>"
        f"<Account>{account}</Account></GetCallerIdentityResult>"
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        "</GetCallerIdentityResponse>"
    )
    headers = {"x-amzn-RequestId": request_id, "Content-Type": "text/xml", **NOT_FOR_OTHER_SITES}
    return Response(200, text.encode(), headers)
