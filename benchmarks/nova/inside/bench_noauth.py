"""A paste filter in place of keystonemiddleware: ``X-Auth-Token: USER:PROJECT`` is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Application = Callable[[dict[str, Any], Any], Any]


def factory(global_conf: Any, **local_conf: Any) -> Callable[[Application], Application]:
    """As paste.deploy wants it."""

    def make(application: Application) -> Application:
        def answer(environ: dict[str, Any], start_response: Any) -> Any:
            token = environ.get("HTTP_X_AUTH_TOKEN", "admin:admin")
            user, project = f"{token}:admin".split(":")[:2]
            environ |= {
                "HTTP_X_IDENTITY_STATUS": "Confirmed",
                "HTTP_X_USER_ID": user,
                "HTTP_X_USER_NAME": user,
                "HTTP_X_PROJECT_ID": project,
                "HTTP_X_PROJECT_NAME": project,
                "HTTP_X_USER_DOMAIN_ID": "default",
                "HTTP_X_PROJECT_DOMAIN_ID": "default",
                "HTTP_X_ROLES": "admin,manager,member,reader" if user == "admin" else "member,reader",
                "HTTP_X_SERVICE_CATALOG": "[]",
            }
            return application(environ, start_response)

        return answer

    return make
