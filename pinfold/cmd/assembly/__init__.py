"""What each process is put together from. Imported only after the concurrency backend is chosen."""
