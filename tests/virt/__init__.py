"""Hypervisor drivers: the contract that each keeps, and the fake one's own promises."""
