"""Image stores: the contract that each keeps, and what each promises besides."""
