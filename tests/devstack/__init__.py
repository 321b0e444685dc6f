"""The parts of stack.sh that need no cloud."""
