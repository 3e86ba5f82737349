"""The transformer trunk, its two geometries, its attention biases and its heads."""

from genpolicy.networks.biases import AttentionBias
from genpolicy.networks.causal import CausalTransformer
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.transformer import DenoisingTransformer

__all__ = ["AttentionBias", "CausalTransformer", "DenoisingTransformer", "NetworkConfig"]
