"""The wire: messages, a client class per service, and two transports."""
