"""A deterministic simulator: the real code, with time, threads, messages, the hypervisor and death in our hands."""
