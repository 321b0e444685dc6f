"""Images behind an Image API v2: Glance, or Pinfold's own.

Transient failures (no connection, 429, 5xx) are tried again; an upload only as long as none of its data was
taken. The data of an image that is active cannot be replaced there: repeating an upload that went through
changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import requests
from keystoneauth1 import exceptions, session

from pinfold.image.store import Image, ImageNotFound
from pinfold.image.v2 import from_v2
from pinfold.model import errors
from pinfold.runtime import Runtime

LOG = logging.getLogger(__name__)

PIECE = 1024**2
"""Bytes that a download reads at once."""

PAGE = 500
"""Images that are asked for at once; the service may give fewer."""

_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
# A service that refuses an upload may leave its data unread; that connection is of no more use.
_STREAM = {"Content-Type": "application/octet-stream", "Connection": "close"}
_PATCH = "application/openstack-images-v2.1-json-patch"

# What the service sets by itself.
_READ_ONLY = frozenset({"status", "size", "checksum", "created_at", "updated_at"})


class GlanceStore:
    """A Store. ``endpoint`` is the service's root, with or without ``/v2``; without one Keystone is asked for
    the one with the attributes ``catalog``.

    A request is tried ``attempts`` times, with ``pause`` seconds before the second and twice as long before
    each one after. Timeouts are the session's.
    """

    def __init__(
        self,
        runtime: Runtime,
        http: session.Session,
        endpoint: str | None,
        *,
        catalog: Mapping[str, Any] | None = None,
        attempts: int = 4,
        pause: float = 0.2,
    ) -> None:
        self._runtime = runtime
        self._http = http
        self._images = None if endpoint is None else _images(endpoint)
        self._catalog = catalog or {"service_type": "image"}
        self._attempts = attempts
        self._pause = pause

    def get(self, image: str) -> Image:
        """Raises ImageNotFound."""
        return _image(self._request("GET", f"/{_quoted(image)}"))

    def list(self) -> list[Image]:
        """All images that the service shows us, in its order, which is newest first."""
        found: list[Image] = []
        query: str | None = f"limit={PAGE}"
        while query:
            page = _json(self._request("GET", f"?{query}"))
            found.extend(_readable(page.get("images", [])))
            # Only the query: a proxy may have put the service under another path.
            query = urlsplit(page["next"]).query if page.get("next") else None
        return found

    def create(self, image: Image) -> Image:
        """Raises errors.Conflict when the id is taken."""
        body = {
            key: value
            for key, value in msgspec.to_builtins(image).items()
            if key not in _READ_ONLY and value not in (None, "")
        }
        body.update(body.pop("properties"))
        sent = _Sent()
        try:
            return _image(self._request("POST", "", json=body, sent=sent))
        except errors.Conflict:
            if sent.times == 1:
                raise
        # An earlier try may have reached the service although its answer did not reach us.
        there = self.get(image.id)
        if (there.name, there.owner, there.status) == (image.name, image.owner or there.owner, "queued"):
            return there
        raise errors.Conflict(f"There is an image {image.id} already.")

    def update(self, image: str, changes: Mapping[str, object]) -> Image:
        """Raises ImageNotFound."""
        fields = {key: msgspec.to_builtins(value) for key, value in changes.items()}
        patch: list[dict[str, object]] = []
        if "properties" in fields:
            patch += _property_patch(self.get(image).properties, fields.pop("properties"))
        patch += [{"op": "replace", "path": f"/{key}", "value": value} for key, value in fields.items()]
        data = msgspec.json.encode(patch)
        headers = {"Content-Type": _PATCH}
        return _image(self._request("PATCH", f"/{_quoted(image)}", data=data, headers=headers))

    def upload(self, image: str, data: Iterable[bytes]) -> Image:
        """Raises ImageNotFound; errors.Conflict while another upload is under way or was broken off."""
        # Asking first renews an old token, which cannot be done in the middle of the data.
        there = self.get(image)
        if there.status == "active":
            return there
        body = _Body(data)
        try:
            self._request("PUT", f"/{_quoted(image)}/file", data=body, headers=_STREAM)
        except errors.PinfoldError:
            if body.error is not None:
                raise body.error from None
            raise
        there = self.get(image)
        if there.size != body.size:
            raise errors.Unavailable(
                f"The image service has {there.size} bytes of image {image}, and {body.size} were sent."
            )
        return there

    def download(self, image: str) -> Iterator[bytes]:
        """Raises ImageNotFound at the call, also for an image without data."""
        response = self._request("GET", f"/{_quoted(image)}/file", stream=True)
        if response.status_code == 204:
            response.close()
            raise ImageNotFound(f"Image {image} has no data.")
        return _received(response, image)

    def delete(self, image: str) -> None:
        """Raises errors.Forbidden when the image is protected, errors.Conflict while it is in use."""
        try:
            self._request("DELETE", f"/{_quoted(image)}")
        except ImageNotFound:
            pass

    def _request(
        self, method: str, path: str, *, sent: _Sent | None = None, **extra: Any
    ) -> requests.Response:
        """The response, if it was accepted. Raises what ``_refusal`` says, or errors.Unavailable."""
        sent = sent or _Sent()
        body = extra.get("data")
        while True:
            sent.times += 1
            try:
                return self._send(method, self._address() + path, **extra)
            except _Transient as error:
                taken = isinstance(body, _Body) and body.started
                if taken or sent.times >= self._attempts:
                    raise
                LOG.info("%s Trying again.", error)
            self._runtime.sleep(self._pause * 2 ** (sent.times - 1))

    def _send(self, method: str, url: str, **extra: Any) -> requests.Response:
        # A second try with a new token would send the rest of an upload as if it were all of it.
        whole = not isinstance(extra.get("data"), _Body)
        try:
            response = self._http.request(url, method, raise_exc=False, allow_reauth=whole, **extra)
        except exceptions.RetriableConnectionFailure as error:
            raise _Transient(f"The image service does not answer {method} {url}: {error}.") from error
        except exceptions.ClientException as error:
            raise errors.Unavailable(f"The image service cannot be used at {url}: {error}.") from error
        if response.status_code < 400:
            return response
        try:
            refusal = _refusal(response, method, url)
        finally:
            response.close()
        if response.status_code == 401:
            self._http.invalidate()
        raise refusal

    def _address(self) -> str:
        """Where the images are, asked of Keystone once where the configuration does not say."""
        if self._images is None:
            self._images = _images(catalogued(self._http, self._catalog))
        return self._images


def catalogued(http: session.Session, wanted: Mapping[str, Any]) -> str:
    """Where Keystone's catalog says that the service with these attributes is.

    Raises errors.ConfigurationError when it has none, errors.Unavailable when Keystone does not answer.
    """
    try:
        endpoint = http.get_endpoint(**wanted)
        why = "it has no endpoint"
    except exceptions.CatalogException as error:
        endpoint, why = None, str(error)
    except exceptions.ClientException as error:
        raise errors.Unavailable(f"Keystone does not tell where the image service is: {error}.") from error
    if endpoint is None:
        raise errors.ConfigurationError(
            f"Keystone's catalog does not have the image service: {why}. Set [image] endpoint, or the region."
        )
    return str(endpoint)


def _images(endpoint: str) -> str:
    return endpoint.rstrip("/").removesuffix("/v2") + "/v2/images"


def _quoted(image: str) -> str:
    if not image.strip("."):  # a path of its own meaning
        raise ImageNotFound(f"There is no image '{image}'.")
    return quote(image, safe="")


class _Transient(errors.Unavailable):
    """It may go through when it is tried again."""


class _Sent:
    """How often a request was sent."""

    times = 0


class _Body:
    """Data that can be sent once; tells whether any of it was taken, and what its source raised."""

    def __init__(self, data: Iterable[bytes]) -> None:
        self._data = data
        self.started = False
        self.size = 0
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        self.started = True
        try:
            for piece in self._data:
                self.size += len(piece)
                yield piece
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise


def _refusal(response: requests.Response, method: str, url: str) -> errors.PinfoldError:
    status = response.status_code
    text = f"The image service answered {status} to {method} {url}: {response.text[:200]}"
    if status in _TRANSIENT:
        return _Transient(text)
    if status in (404, 410):
        return ImageNotFound(text)
    kinds = {400: errors.InvalidRequest, 403: errors.Forbidden, 409: errors.Conflict, 413: errors.Forbidden}
    return kinds.get(status, errors.Unavailable)(text)


def _json(response: requests.Response) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(response.content)
    except msgspec.DecodeError as error:
        raise errors.Unavailable(
            f"{response.url} does not answer as an image service does: {error}."
        ) from error
    if not isinstance(body, dict):
        raise errors.Unavailable(f"{response.url} does not answer as an image service does.")
    return body


def _image(response: requests.Response) -> Image:
    try:
        return from_v2(_json(response))
    except ValueError as error:
        raise errors.Unavailable(f"{response.url} does not answer with an image: {error}.") from error


def _readable(bodies: Iterable[dict[str, Any]]) -> Iterator[Image]:
    for body in bodies:
        try:
            yield from_v2(body)
        except ValueError as error:
            LOG.warning("An image is left out of the list: %s. It is %.200s", error, body)


def _property_patch(old: Mapping[str, str], new: Mapping[str, str]) -> list[dict[str, object]]:
    """The JSON patch that makes ``old`` free-form properties ``new``."""
    patch: list[dict[str, object]] = [
        {"op": "remove", "path": _pointer(key)} for key in sorted(old.keys() - new.keys())
    ]
    for key, value in sorted(new.items()):
        if old.get(key) != value:
            patch.append({"op": "replace" if key in old else "add", "path": _pointer(key), "value": value})
    return patch


def _pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")


def _received(response: requests.Response, image: str) -> Iterator[bytes]:
    try:
        yield from response.iter_content(PIECE)
    except requests.RequestException as error:
        raise errors.Unavailable(
            f"The image service broke off the data of image {image}: {error}."
        ) from error
    finally:
        response.close()
