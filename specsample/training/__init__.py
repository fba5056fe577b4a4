"""Training: objectives over logical axes, in steps that an interruption does not change."""
