"""pinfold-manage: the operator's command. It works on the database; it needs no broker."""
