"""A real Nova on this machine, to be measured beside Pinfold in the same run."""
