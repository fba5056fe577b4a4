"""Text in and out of models: tokenizers, chat formats, prompt sets and experiments."""
