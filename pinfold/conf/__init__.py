"""Options, one file per service; the ConfigOpts object is handed in, never global."""
