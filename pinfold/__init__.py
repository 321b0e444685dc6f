"""Pinfold: a compute control plane for servers with dedicated CPUs."""
