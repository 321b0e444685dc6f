"""Real clients against a real cloud, compared with what they said to a real Nova."""
