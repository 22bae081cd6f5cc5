"""The command line: a verb, its config, and the function that config is bound to. DictConfig stops here."""
