"""The older AWS query protocol: parameters as a form in the URL or body, responses in XML.

Names like `SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.StringValue` are folded into
the shapes of the JSON protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from pillarbox.broker.errors import NO_ACCESS, SqsError, invalid, invalid_value
from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Request, Response
from pillarbox.broker.sqs_request import Result

_NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
_FIELDS_MAX: Final = 1_000
_DEPTH_MAX: Final = 8

# name on the wire -> name in the shape
_LISTS = {
    "AttributeName": "AttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "TagKey": "TagKeys",
    "StringListValue": "StringListValues",
    "BinaryListValue": "BinaryListValues",
    "SendMessageBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
}
_MAPS = {
    "Attribute": "Attributes",
    "Tag": "Tags",
    "MessageAttribute": "MessageAttributes",
    "MessageSystemAttribute": "MessageSystemAttributes",
}
# Some SDKs name a list or a map as in the shape (`Tags.1.Key`), which AWS accepts too.
_ALL_LISTS: Final = {**_LISTS, **{field: field for field in _LISTS.values()}}
_ALL_MAPS: Final = {**_MAPS, **{field: field for field in _MAPS.values()}}

# name in a result -> name of each element
_EACH = {
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}
_PAIRS = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "Tags": ("Tag", "Key", "Value"),
}
# AWS's names in JSON responses of this protocol, and fields that these always contain.
_JSON_NAMES = {"Messages": "messages", "QueueUrls": "queueUrls"}
_NULLS: Final[dict[str, dict[str, None]]] = {
    "ReceiveMessage": {"messages": None},
    "Messages": {"Attributes": None, "MD5OfMessageAttributes": None, "MessageAttributes": None},
    "SendMessage": {
        "MD5OfMessageAttributes": None,
        "MD5OfMessageSystemAttributes": None,
        "SequenceNumber": None,
    },
}
_NO_NUMBER = re.compile(r"Expected `int\b.* - at `\$\.(\w+)`\Z")
_UNSAFE = re.compile('[&<>"\r]|[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]')
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}


def form_of(request: Request) -> dict[str, str]:
    """Return the parameters of the URL and of the body."""
    text = request.query
    try:
        if request.method == "POST":
            text = (
                f"{text}&{request.body.decode('ascii')}" if text else request.body.decode("ascii")
            )
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise SqsError("SerializationException", f"The form is not valid: {error}") from None
    return dict(pairs)


def parameters(form: Mapping[str, str], shape: type[Any]) -> Any:
    """Convert the parameters of an action to its shape."""
    tree: dict[str, Any] = {}
    for name, value in form.items():
        branch = tree
        *path, leaf = name.split(".")
        if len(path) >= _DEPTH_MAX:
            raise SqsError("SerializationException", f"The parameter {name[:100]} is too deep.")
        for part in path:
            branch = branch.setdefault(part, {})
            if not isinstance(branch, dict):
                raise SqsError("SerializationException", f"The parameter {name} is ambiguous.")
        branch[leaf] = value
    folded = _fold(tree)
    if "Entries" in shape.__struct_fields__:
        folded.setdefault("Entries", [])  # an empty batch; in JSON, a missing parameter
    if folded.get("AttributeNames"):  # in this protocol the older parameter takes precedence
        folded.pop("MessageSystemAttributeNames", None)
    try:
        return msgspec.convert(folded, shape, strict=False)
    except msgspec.ValidationError as error:
        found = _NO_NUMBER.search(str(error))
        if found is not None:
            raise invalid_value(found[1], folded[found[1]], "Must be an integer.") from None
        raise invalid(f"Bad parameter: {error}") from None


def _fold(tree: dict[str, Any]) -> dict[str, Any]:
    """Fold numbered parameters into lists and maps; one without a number is the only element."""
    folded: dict[str, Any] = {}
    for name, value in tree.items():
        if name in _ALL_LISTS:
            folded[_ALL_LISTS[name]] = [
                _fold(each) if isinstance(each, dict) else each for each in _numbered(value)
            ]
        elif name in _ALL_MAPS:
            folded[_ALL_MAPS[name]] = dict(_named(each) for each in _numbered(value))
        else:
            folded[name] = value
    return folded


def _numbered(items: Any) -> list[Any]:
    """Return the elements of a list or a map in order."""
    if not isinstance(items, dict) or "Name" in items:  # AttributeName=All, Attribute.Name=...
        return [items] if items else []
    inner = items.get("member", items.get("entry")) if len(items) == 1 else None
    if isinstance(inner, dict):
        items = inner
    try:
        return [items[number] for number in sorted(items, key=lambda n: int(n[:9]))]
    except ValueError:
        raise SqsError("SerializationException", "Lists must be numbered.") from None


def _named(item: Any) -> tuple[str, Any]:
    if not isinstance(item, dict):
        raise SqsError("SerializationException", "Entries of a map must have a name.")
    item = {field.capitalize(): value for field, value in item.items()}
    name, value = item.get("Name", item.get("Key", "")), item.get("Value", "")
    return str(name), _fold(value) if isinstance(value, dict) else value


def unknown_operation(request_id: str) -> Response:
    """Return the response to a request without an action; XML even if JSON is accepted."""
    return Response(404, b"<UnknownOperationException/>\n", _headers(request_id, "xml"))


class QueryFormat:
    """Writes responses in XML, or in JSON if the client accepts it."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json

    def result(self, action: str, result: Result, request_id: str) -> Response:
        if self._as_json:
            known = {f"{action}Result": _in_json(result, action)} if result is not None else {}
            known["ResponseMetadata"] = {"RequestId": request_id}
            document = {f"{action}Response": known}
            return Response(200, msgspec.json.encode(document), _headers(request_id, "json"))
        content = ""
        if result is not None:
            inner = _elements(result, action)
            content = f"<{action}Result>{inner}</{action}Result>" if inner else f"<{action}Result/>"
        text = (
            f'<?xml version="1.0"?><{action}Response xmlns="{_NAMESPACE}">{content}'
            f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
            f"</{action}Response>"
        )
        return Response(200, text.encode(), _headers(request_id, "xml"))

    def error(self, error: SqsError, request_id: str) -> Response:
        fault = "Sender" if error.is_senders else "Receiver"
        message = error.message
        if error.name == "QueueDoesNotExist" and message != NO_ACCESS:
            message = "The specified queue does not exist for this wsdl version."
        if self._as_json:
            known = {"Type": fault, "Code": error.kind.code, "Message": message}
            body = msgspec.json.encode({"Error": known, "RequestId": request_id})
            return Response(error.kind.status, body, _headers(request_id, "json"))
        text = (
            f'<?xml version="1.0"?><ErrorResponse xmlns="{_NAMESPACE}"><Error>'
            f"<Type>{fault}</Type><Code>{error.kind.code}</Code><Message>{_escape(message)}"
            f"</Message><Detail/></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
        )
        return Response(error.kind.status, text.encode(), _headers(request_id, "xml"))


def _in_json(value: Any, name: str) -> Any:
    """Convert a result to AWS's JSON form of this protocol: maps as lists of pairs."""
    if isinstance(value, list):
        return [_in_json(each, name) for each in value]
    if not isinstance(value, dict):
        return value
    if name in _PAIRS:
        _, key, content = _PAIRS[name]
        return [{key: k, content: _in_json(v, content)} for k, v in value.items()]
    known = {_JSON_NAMES.get(k, k): _in_json(v, k) for k, v in value.items()}
    return {**_NULLS.get(name, {}), **known}


def _headers(request_id: str, kind: str) -> dict[str, str]:
    media = "text/xml" if kind == "xml" else "application/json"
    return {"x-amzn-RequestId": request_id, "Content-Type": media, **NOT_FOR_OTHER_SITES}


def _elements(struct: Mapping[str, Any], action: str) -> str:
    return "".join(_element(name, value, action) for name, value in struct.items())


def _element(name: str, value: Any, action: str) -> str:
    if isinstance(value, list):
        each = _EACH.get(name) or f"{action}ResultEntry"
        return "".join(_element(each, item, action) for item in value)
    if isinstance(value, dict) and name in _PAIRS:
        outer, key, content = _PAIRS[name]
        return "".join(
            f"<{outer}><{key}>{_escape(k)}</{key}>{_element(content, v, action)}</{outer}>"
            for k, v in value.items()
        )
    if isinstance(value, dict):
        return f"<{name}>{_elements(value, action)}</{name}>"
    if isinstance(value, bool):
        value = "true" if value else "false"
    return f"<{name}>{_escape(str(value))}</{name}>"


def _escape(text: str) -> str:
    """Escape text so that XML preserves it; characters that XML can't carry become U+FFFD."""
    return _UNSAFE.sub(lambda found: _ESCAPES.get(found[0], "\ufffd"), text)
