"""What this documentation draws from the code. Each module renders lines of reStructuredText; ``directives`` puts
them into pages."""
