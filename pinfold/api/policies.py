"""Who may do what: rules by Nova's names, so that an operator's policy file carries over.

``list_rules`` is what ``oslopolicy-sample-generator`` reads.
"""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from pinfold.model import errors
from pinfold.rpcapi.context import Context

ADMIN = "rule:context_is_admin"
MANAGER = "rule:project_manager_or_admin"
MEMBER = "rule:project_member_or_admin"
READER = "rule:project_reader_or_admin"
ANYBODY = "@"
OWNER = f"user_id:%(user_id)s or {ADMIN}"

PREFIX = "os_compute_api:"

_BASE = {
    "context_is_admin": ("role:admin", "Who may act for the whole cloud."),
    "project_manager_or_admin": (
        f"(role:manager and project_id:%(project_id)s) or {ADMIN}",
        "Managers of the project, and admins.",
    ),
    "project_member_or_admin": (
        f"(role:member and project_id:%(project_id)s) or {ADMIN}",
        "Members of the project, and admins.",
    ),
    "project_reader_or_admin": (
        f"(role:reader and project_id:%(project_id)s) or {ADMIN}",
        "Readers of the project, and admins.",
    ),
}

# name: (who, what it allows)
RULES: dict[str, tuple[str, str]] = {
    "servers:create": (MEMBER, "Create servers."),
    "servers:create:forced_host": (ADMIN, "Create a server on a host named in availability_zone."),
    "servers:create:zero_disk_flavor": (ADMIN, "Create a server from a flavor without a disk."),
    "compute:servers:create:requested_destination": (ADMIN, "Create a server on a host or node of choice."),
    "servers:index": (READER, "List servers."),
    "servers:index:get_all_tenants": (ADMIN, "List servers of all projects."),
    "servers:detail": (READER, "List servers with details."),
    "servers:detail:get_all_tenants": (ADMIN, "List servers of all projects with details."),
    "servers:allow_all_filters": (ADMIN, "Filter the list of servers by any field."),
    "servers:show": (READER, "Show a server."),
    "servers:show:host_status": (ADMIN, "Show the state of a server's host."),
    "servers:show:flavor-extra-specs": (READER, "Show the extra specs of a server's flavor."),
    "os-extended-server-attributes": (ADMIN, "Show a server's host, node and other extended attributes."),
    "servers:update": (MEMBER, "Change a server's name or description."),
    "servers:delete": (MEMBER, "Delete a server."),
    "os-deferred-delete:force": (MEMBER, "Delete a server at once."),
    "os-deferred-delete:restore": (MEMBER, "Restore a soft-deleted server."),
    "servers:start": (MEMBER, "Start a server."),
    "servers:stop": (MEMBER, "Stop a server."),
    "servers:reboot": (MEMBER, "Reboot a server."),
    "servers:rebuild": (MEMBER, "Rebuild a server from an image."),
    "servers:create_image": (MEMBER, "Make an image of a server."),
    "os-pause-server:pause": (MEMBER, "Pause a server."),
    "os-pause-server:unpause": (MEMBER, "Let a paused server go on."),
    "os-suspend-server:suspend": (MEMBER, "Suspend a server."),
    "os-suspend-server:resume": (MEMBER, "Let a suspended server go on."),
    "os-admin-actions:reset_state": (ADMIN, "Say what state a server is in."),
    "os-console-output": (MEMBER, "Read what a server wrote to its console."),
    "os-lock-server:lock": (MEMBER, "Lock a server."),
    "os-lock-server:unlock": (MEMBER, "Unlock a server that one has locked."),
    "os-server-tags:index": (READER, "List a server's tags."),
    "os-server-tags:show": (READER, "See whether a server has a tag."),
    "os-server-tags:update": (MEMBER, "Add a tag to a server."),
    "os-server-tags:update_all": (MEMBER, "Replace a server's tags."),
    "os-server-tags:delete": (MEMBER, "Remove a tag from a server."),
    "os-server-tags:delete_all": (MEMBER, "Remove all tags from a server."),
    "servers:resize": (MEMBER, "Give a server another flavor."),
    "servers:confirm_resize": (MEMBER, "Confirm a resize or a migration."),
    "servers:revert_resize": (MEMBER, "Revert a resize or a migration."),
    "os-migrate-server:migrate_live": (MANAGER, "Move a server to another host while it runs."),
    "os-migrate-server:migrate_live:host": (ADMIN, "Move a server to a host of choice while it runs."),
    "os-evacuate": (ADMIN, "Move a server off a host that is dead."),
    "os-migrate-server:migrate": (MANAGER, "Move a server to another host, shut down meanwhile."),
    "os-migrate-server:migrate:host": (ADMIN, "Move a server to a host of choice, shut down meanwhile."),
    "os-shelve:shelve": (MEMBER, "Shelve a server."),
    "os-shelve:unshelve": (MEMBER, "Unshelve a server."),
    "os-shelve:shelve_offload": (ADMIN, "Take a shelved server off its host."),
    "os-shelve:unshelve_to_host": (ADMIN, "Unshelve a server to a host of choice."),
    "os-lock-server:unlock:unlock_override": (ADMIN, "Act on servers that somebody else has locked."),
    "server-metadata:index": (READER, "List a server's metadata."),
    "server-metadata:show": (READER, "Show an item of a server's metadata."),
    "server-metadata:create": (MEMBER, "Add to a server's metadata."),
    "server-metadata:update": (MEMBER, "Change an item of a server's metadata."),
    "server-metadata:update_all": (MEMBER, "Replace a server's metadata."),
    "server-metadata:delete": (MEMBER, "Remove an item of a server's metadata."),
    "flavors": (ANYBODY, "List and show flavors."),
    "os-flavor-manage:create": (ADMIN, "Create flavors."),
    "os-flavor-manage:update": (ADMIN, "Change a flavor's description."),
    "os-flavor-manage:delete": (ADMIN, "Delete flavors."),
    "os-flavor-access": (ADMIN, "See flavors that are not public, and who may use them."),
    "os-flavor-access:add_tenant_access": (ADMIN, "Let a project use a flavor that is not public."),
    "os-flavor-access:remove_tenant_access": (ADMIN, "Let a project use such a flavor no more."),
    "os-flavor-extra-specs:index": (READER, "List a flavor's extra specs."),
    "os-flavor-extra-specs:show": (READER, "Show one of a flavor's extra specs."),
    "os-flavor-extra-specs:create": (ADMIN, "Give a flavor extra specs."),
    "os-flavor-extra-specs:update": (ADMIN, "Change one of a flavor's extra specs."),
    "os-flavor-extra-specs:delete": (ADMIN, "Remove one of a flavor's extra specs."),
    "compute:server:topology:index": (READER, "Show the NUMA cells of a server."),
    "compute:server:topology:host:index": (ADMIN, "Show on which cells and CPUs of its host they are."),
    "os-instance-actions:list": (READER, "List what was done with a server."),
    "os-instance-actions:show": (READER, "Show what one request did with a server."),
    "os-instance-actions:events": (ADMIN, "Show hosts and errors of the events in an action."),
    "os-instance-actions:events:details": (ADMIN, "Show the details of the events in an action."),
    "servers:migrations:index": (MANAGER, "List the live migrations of a server."),
    "servers:migrations:show": (ADMIN, "Show a live migration of a server."),
    "servers:migrations:delete": (MANAGER, "Abort a live migration of a server."),
    "servers:migrations:force_complete": (MANAGER, "Force a live migration of a server to its end."),
    "os-migrations:index": (MANAGER, "List moves of servers."),
    "os-migrations:index:all_projects": (ADMIN, "List moves of servers of all projects."),
    "os-migrations:index:host": (ADMIN, "See between which hosts servers were moved."),
    "os-keypairs:index": (OWNER, "List one's keypairs."),
    "os-keypairs:create": (OWNER, "Create or import a keypair."),
    "os-keypairs:show": (OWNER, "Show one of one's keypairs."),
    "os-keypairs:delete": (OWNER, "Delete one of one's keypairs."),
    "os-server-groups:index": (READER, "List server groups."),
    "os-server-groups:index:all_projects": (ADMIN, "List server groups of all projects."),
    "os-server-groups:create": (MEMBER, "Create server groups."),
    "os-server-groups:show": (READER, "Show a server group."),
    "os-server-groups:delete": (MEMBER, "Delete server groups."),
    "os-services:list": (ADMIN, "List services."),
    "os-services:update": (ADMIN, "Enable, disable or force down a compute service."),
    "os-services:delete": (ADMIN, "Delete services."),
    "os-hypervisors:list": (ADMIN, "List hypervisors."),
    "os-hypervisors:list-detail": (ADMIN, "List hypervisors with details."),
    "os-hypervisors:statistics": (ADMIN, "Show the sums of all hypervisors."),
    "os-hypervisors:show": (ADMIN, "Show a hypervisor."),
    "os-hypervisors:uptime": (ADMIN, "Show how long a hypervisor has run."),
    "os-hypervisors:search": (ADMIN, "Look hypervisors up by a part of their names."),
    "os-hypervisors:servers": (ADMIN, "List the servers of hypervisors."),
    "os-hosts:list": (ADMIN, "List hosts."),
    "os-hosts:show": (ADMIN, "Show what a host has and what is used of it."),
    "os-hosts:update": (ADMIN, "Let a host take servers, or not."),
    "os-hosts:start": (ADMIN, "Start a host (no host can be started here)."),
    "os-hosts:shutdown": (ADMIN, "Stop a host (no host can be stopped here)."),
    "os-hosts:reboot": (ADMIN, "Reboot a host (no host can be rebooted here)."),
    "os-aggregates:index": (ADMIN, "List aggregates."),
    "os-aggregates:create": (ADMIN, "Create aggregates."),
    "os-aggregates:show": (ADMIN, "Show an aggregate."),
    "os-aggregates:update": (ADMIN, "Change an aggregate's name or zone."),
    "os-aggregates:delete": (ADMIN, "Delete aggregates."),
    "os-aggregates:add_host": (ADMIN, "Add a host to an aggregate."),
    "os-aggregates:remove_host": (ADMIN, "Remove a host from an aggregate."),
    "os-aggregates:set_metadata": (ADMIN, "Change an aggregate's metadata."),
    "compute:aggregates:images": (ADMIN, "Cache images on an aggregate's hosts (nothing is cached here)."),
    "os-availability-zone:list": (ANYBODY, "List availability zones."),
    "os-availability-zone:detail": (ADMIN, "List availability zones with their hosts."),
    "os-quota-sets:show": (READER, "Show a project's limits."),
    "os-quota-sets:detail": (READER, "Show a project's limits and what is used."),
    "os-quota-sets:defaults": (ANYBODY, "Show the default limits."),
    "os-quota-sets:update": (ADMIN, "Change a project's limits."),
    "os-quota-sets:delete": (ADMIN, "Give a project the default limits again."),
    "os-quota-class-sets:show": (ADMIN, "Show a class of limits."),
    "os-quota-class-sets:update": (ADMIN, "Change a class of limits."),
    "limits": (ANYBODY, "Show the own project's limits and what is used."),
    "limits:other_project": (ADMIN, "Show another project's limits and what is used."),
    "os-simple-tenant-usage:list": (ADMIN, "Show for how long servers of all projects ran."),
    "os-simple-tenant-usage:show": (READER, "Show for how long a project's servers ran."),
    "extensions": (ANYBODY, "List extensions."),
    # What there is not: who is told so.
    "ips:index": (READER, "List a server's addresses (there are none)."),
    "os-attach-interfaces:list": (READER, "List a server's ports (there are none)."),
    "os-attach-interfaces:create": (MEMBER, "Attach a port to a server (there are none)."),
    "os-baremetal-nodes": (ADMIN, "List bare metal (there is none)."),
    "os-console-auth-tokens": (ADMIN, "Look a console's token up (there are none)."),
    "os-floating-ips:list": (READER, "List floating addresses (there are none)."),
    "os-instance-usage-audit-log:list": (ADMIN, "List usage audits (there are none)."),
    "os-networks:list": (READER, "List networks (there are none)."),
    "os-remote-consoles": (MEMBER, "Open a server's console (there are none)."),
    "os-security-groups:list": (READER, "List security groups (there are none)."),
    "os-server-diagnostics": (ADMIN, "Show a server's diagnostics (there are none)."),
    "os-server-external-events:create": (ADMIN, "Tell of events in other services (there are none)."),
    "os-server-password:show": (READER, "Show a server's password (there is none)."),
    "os-server-password:clear": (MEMBER, "Clear a server's password (there is none)."),
    "os-volumes:list": (READER, "List volumes (there are none)."),
    "os-volumes-attachments:index": (READER, "List a server's volumes (there are none)."),
    "os-volumes-attachments:create": (MEMBER, "Attach a volume to a server (there are none)."),
}

# Pinfold's own, and those of the image API, without Nova's prefix.
OWN_RULES: dict[str, tuple[str, str]] = {
    "pinfold:nodes": (ADMIN, "See nodes with their cells, pins and claims."),
    "pinfold:operations": (READER, "See a server's operations."),
    "pinfold:operations:refusals": (ADMIN, "See hosts and why each was refused in an operation."),
    "pinfold:gone": (ANYBODY, "Hear that a part of the compute API has been given up."),
    "image:get_images": (ANYBODY, "List and show images that the caller may see."),
    "image:add_image": (MEMBER, "Create images."),
    "image:modify_image": (MEMBER, "Change and upload one's own images."),
    "image:delete_image": (MEMBER, "Delete one's own images."),
    "image:publicize_image": (ADMIN, "Make images public."),
    "identity:projects": (ANYBODY, "Look projects up (noauth only)."),
}


def _rule(name: str, check: str, text: str) -> policy.RuleDefault:
    return policy.RuleDefault(name=name, check_str=check, description=text)


def list_rules() -> list[policy.RuleDefault]:
    """All rules with their defaults."""
    return [
        *(_rule(name, check, text) for name, (check, text) in _BASE.items()),
        *(_rule(PREFIX + name, check, text) for name, (check, text) in RULES.items()),
        *(_rule(name, check, text) for name, (check, text) in OWN_RULES.items()),
    ]


class Policies:
    """Decides by the rules of ``[oslo_policy]``, read once; ``reload`` reads them again.

    Answers are remembered: they depend on the rule, the caller and the owner of the thing only. (oslo.policy itself
    looks at its files on each question, and inspects signatures on each step of an answer.)
    """

    _REMEMBERED = 8192

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._answers: dict[tuple[Any, ...], bool] = {}
        self._enforcer = self._load()

    def reload(self) -> None:
        """Read the policy files again. Raises errors.ConfigurationError, and then keeps the old rules."""
        self._enforcer = self._load()
        self._answers = {}

    def _load(self) -> policy.Enforcer:
        enforcer = policy.Enforcer(self._conf)
        enforcer.register_defaults(list_rules())
        try:
            enforcer.load_rules()
            enforcer.check_rules(raise_on_violation=True)
        except Exception as error:  # oslo.policy raises whatever its parsers do
            raise errors.ConfigurationError(
                f"[oslo_policy] policy_file or policy_dirs cannot be used: {error}"
            ) from error
        return enforcer

    def allows(
        self, rule: str, context: Context, project: str | None = None, user: str | None = None
    ) -> bool:
        """Whether the caller may do ``rule`` to something of ``project`` (their own when not given)."""
        owner = context.project_id if project is None else project
        key = (rule, context.user_id, context.project_id, context.roles, owner, user)
        known = self._answers.get(key)
        if known is None:
            known = self._evaluate(rule, context, owner, user)
            if len(self._answers) >= self._REMEMBERED:
                self._answers = {}
            self._answers[key] = known
        return known

    def _evaluate(self, rule: str, context: Context, project: str | None, user: str | None) -> bool:
        creds: dict[str, Any] = {
            "user_id": context.user_id,
            "project_id": context.project_id,
            "roles": list(context.roles),
        }
        target = {"project_id": project, "user_id": user or context.user_id}
        name = rule if rule in OWN_RULES or rule in _BASE else PREFIX + rule
        return bool(self._enforcer.rules[name](target, creds, self._enforcer, name))

    def require(
        self, rule: str, context: Context, project: str | None = None, user: str | None = None
    ) -> None:
        """Raise errors.Forbidden unless the caller may."""
        if not self.allows(rule, context, project, user):
            raise errors.Forbidden(
                f"Policy doesn't allow {rule if rule in OWN_RULES else PREFIX + rule} to be performed.",
                code="policy",
            )
