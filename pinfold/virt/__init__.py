"""Hypervisor drivers."""
