"""``/limits``: what the caller's project may have, and has."""

from __future__ import annotations

from typing import Any

from pinfold.api import query as queries
from pinfold.api.call import Call
from pinfold.api.listing import allowed
from pinfold.api.quota_sets import in_use
from pinfold.api.schemas_around import shown_quotas
from pinfold.db import quotas as book_quotas

PARAMETERS = {"reserved": 1, "tenant_id": 1}

_LIMITS = {
    "instances": "maxTotalInstances",
    "cores": "maxTotalCores",
    "ram": "maxTotalRAMSize",
    "key_pairs": "maxTotalKeypairs",
    "metadata_items": "maxServerMeta",
    "server_groups": "maxServerGroups",
    "server_group_members": "maxServerGroupMembers",
    "injected_files": "maxPersonality",
    "injected_file_content_bytes": "maxPersonalitySize",
    "floating_ips": "maxTotalFloatingIps",
    "security_groups": "maxSecurityGroups",
    "security_group_rules": "maxSecurityGroupRules",
}
_USED = {
    "instances": "totalInstancesUsed",
    "cores": "totalCoresUsed",
    "ram": "totalRAMUsed",
    "server_groups": "totalServerGroupsUsed",
    "floating_ips": "totalFloatingIpsUsed",
    "security_groups": "totalSecurityGroupsUsed",
}


def index(call: Call) -> dict[str, Any]:
    """Limits and what is used of them; of another project for an admin."""
    call.authorize(call.project)
    query = allowed(call, PARAMETERS)
    project = queries.last(query, "tenant_id") or call.project
    if "tenant_id" in query:
        call.require("limits:other_project")

    def read(session: Any) -> tuple[dict[str, int], dict[str, int]]:
        may = book_quotas.limits(session, call.deps.settings.quotas, project)
        return may.project, in_use(session, project)

    limits, used = call.deps.book.read(read)
    shown = shown_quotas(call.minor, 36)
    absolute = {_LIMITS[name]: limits[name] for name in shown if name in _LIMITS}
    absolute |= {_USED[name]: used.get(name, 0) for name in shown if name in _USED}
    if call.minor < 39:
        absolute["maxImageMeta"] = limits["metadata_items"]
    return {"limits": {"rate": [], "absolute": absolute}}
