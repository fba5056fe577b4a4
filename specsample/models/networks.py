"""The network that a configuration describes."""

from __future__ import annotations

from specsample.models.config import DecoderConfig, EncoderDecoderConfig
from specsample.models.encoder_decoder import EncoderDecoder
from specsample.models.target import LanguageModel


def network_for(config: DecoderConfig) -> LanguageModel:
    """A decoder-only model, or one with an encoder."""
    if isinstance(config, EncoderDecoderConfig):
        return EncoderDecoder(config)
    return LanguageModel(config)
