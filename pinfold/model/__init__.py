"""Pure rules and values: no I/O, and no import of anything else in Pinfold."""
