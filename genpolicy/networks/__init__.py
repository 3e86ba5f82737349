"""The transformer trunk, its two geometries, its attention biases and its heads."""

from genpolicy.networks.biases import AttentionBias
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.transformer import DenoisingTransformer

__all__ = ["AttentionBias", "DenoisingTransformer", "NetworkConfig"]
