"""Panels so short that a few tokens reach several."""

import pytest

from specsample.models import cache


@pytest.fixture(autouse=True)
def short_panels(monkeypatch):
    monkeypatch.setattr(cache, "FIRST_PANEL", 4)
