from tests.cli.conftest import call, models, refused

__all__ = ["call", "models", "refused"]
