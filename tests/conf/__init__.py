"""Options, the rules about them, and the files made from them."""
